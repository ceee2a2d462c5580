// What a window reads beyond a rank's rows, exchanged between two thread ranks, and its adjoint, on
// images as ResNet-50's 3x3 convolutions have them. Against copies written by hand for exactly two
// threads, in turns in one run:
//
//   by hand          the same from and to where the rows lie, channel by channel
//   rows copied      what the neighbour has to give, in one piece: the bytes that must move
//   all copied       the rank's own rows too, in one piece: an exchange gives a tensor with both
//
//     bench_collectives_halos [--rounds=41] [options of Google Benchmark]

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/meeting.hpp"
#include "collectives/move.hpp"
#include "collectives/redistributions.hpp"
#include "support/on_threads.hpp"
#include "support/program.hpp"

namespace {

namespace sw = shardwise;

using Ranks = sw::ThreadCommunicator;

/// Two threads that show each other a buffer.
class Pair {
 public:
  /// Calls f(the other's buffer) between a meeting before and one behind it.
  template <class F>
  void exchange(int rank, const float* mine, F f) {
    buffers_[rank] = mine;
    meeting_.meet(rank);
    f(buffers_[1 - rank]);
    meeting_.meet(rank);
  }

 private:
  bench::Meeting meeting_;
  const float* buffers_[2] = {};
};

/// Images [batch, channel, height, width] and which rows of them a rank of two has. It needs one
/// row of the other's: the first rank the one behind its own, the second the one before.
struct Rows {
  std::size_t planes;  // of all images
  std::size_t row;     // elements
  std::size_t mine, theirs;
  bool is_first;

  Rows(const sw::Shape& shape, sw::Place place)
      : planes(shape.elements(0, 2)),
        row(shape[3].extent()),
        mine(sw::local_shape<bench::Height>(shape, place)[2].extent()),
        theirs(shape[2].extent() - mine),
        is_first(place.rank == 0) {}

  /// Elements that the other has to give.
  std::size_t halo() const { return planes * row; }

  /// From blocks to a block and its halo.
  void exchange(const float* own, const float* peer, float* out) const {
    for (std::size_t plane = 0; plane < planes; ++plane) {
      float* const to = out + plane * (mine + 1) * row;
      const float* const from = peer + plane * theirs * row;
      std::memcpy(to + (is_first ? 0 : row), own + plane * mine * row, mine * row * sizeof(float));
      std::memcpy(to + (is_first ? mine * row : 0), from + (is_first ? 0 : (theirs - 1) * row),
                  row * sizeof(float));
    }
  }

  /// From summands of blocks and halos to the sum of a block.
  void sum(const float* own, const float* peer, float* out) const {
    for (std::size_t plane = 0; plane < planes; ++plane) {
      float* const to = out + plane * mine * row;
      const float* const from = peer + (plane * (theirs + 1) + (is_first ? 0 : theirs)) * row;
      std::memcpy(to, own + (plane * (mine + 1) + (is_first ? 0 : 1)) * row,
                  mine * row * sizeof(float));
      float* const edge = to + (is_first ? (mine - 1) * row : 0);
      for (std::size_t i = 0; i < row; ++i) edge[i] += from[i];
    }
  }
};

/// From -> To by the function of Rows that does the same.
template <class From, class To, class F>
bench::Move by_hand(Ranks& ranks, Pair& pair, const sw::Shape& shape, F function) {
  const sw::Place place = sw::place_of(ranks);
  const auto tensors = std::make_shared<bench::Redistributed<From, To>>(shape, place);
  return {[=, &pair, rows = Rows(shape, place)] {
            const float* const own = tensors->from().data();
            pair.exchange(place.rank, own, [&](const float* peer) {
              (rows.*function)(own, peer, tensors->to().data());
            });
          },
          [=] { return tensors->is_right(); }, tensors->traffic()};
}

/// What the neighbour has to give in one piece, and if `all` as much as a rank's own rows: those of
/// the rank that has less.
bench::Move copied(Ranks& ranks, Pair& pair, const sw::Shape& shape, bool all) {
  const sw::Place place = sw::place_of(ranks);
  const Rows rows(shape, place);
  const std::size_t n = ((all ? std::min(rows.mine, rows.theirs) : 0) + 1) * rows.halo();
  const auto given = std::make_shared<std::vector<float>>(n);
  return {[=, &pair, taken = std::vector<float>(n)]() mutable {
            pair.exchange(place.rank, given->data(), [&](const float* peer) {
              std::memcpy(taken.data(), peer, n * sizeof(float));
            });
          },
          [] { return true; },
          {}};
}

template <class From, class To, class F>
void add(bench::Program& program, Pair& pair, const std::string& name, const sw::Shape& shape,
         F function) {
  const std::vector<bench::Way<Ranks>> ways{
      {"by hand",
       [=, &pair](Ranks& r, std::size_t) { return by_hand<From, To>(r, pair, shape, function); }},
      {"rows copied", [=, &pair](Ranks& r, std::size_t) { return copied(r, pair, shape, false); }},
      {"all copied", [=, &pair](Ranks& r, std::size_t) { return copied(r, pair, shape, true); }},
      {"ours", bench::redistribution<From, To, Ranks>([=](std::size_t, int) { return shape; })}};
  program.add(name, [=, rounds = program.rounds()] {
    return bench::on_threads(
        2, [&](Ranks& ranks) { return bench::compare(ranks, ways, 0, rounds, 5e-4); });
  });
}

std::string name_of(const char* what, const sw::Shape& shape) {
  const std::string extent = std::to_string(shape[3].extent());
  return std::string(what) + " of halos of 3x3 windows, 4 images, " +
         std::to_string(shape[1].extent()) + " channels, " + extent + 'x' + extent;
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 41);
  Pair pair;
  using Image = std::pair<std::size_t, std::size_t>;  // channels, extent
  for (const Image& image : program.sizes<Image>({{64, 56}, {128, 28}, {256, 14}, {512, 7}})) {
    const sw::Shape shape{{sw::Axis::batch, 4},
                          {sw::Axis::channel, image.first},
                          {sw::Axis::height, image.second},
                          {sw::Axis::width, image.second}};
    add<bench::Height, bench::Haloed>(program, pair, name_of("exchange", shape), shape,
                                      &Rows::exchange);
    add<bench::HaloedPartial, bench::Height>(program, pair, name_of("sum", shape), shape,
                                             &Rows::sum);
  }
  return program.run();
}
