// Random convolutions over 1 to 8 ranks by every split: what all ranks make of what they hold is
// what one rank makes of the whole. Windows are types in layers; here the parts of a layer run on
// those of a test.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/layers/detail/image_windows.hpp"
#include "support/seed.hpp"
#include "unit/backend/convolution_problem.hpp"

using namespace shardwise;

namespace {

using Numbers = std::vector<double>;

/// A convolution of whole images, of which windows and extents differ from axis to axis.
struct Problem {
  ConvolutionChannels channels;
  std::size_t images = 1;
  std::array<Window, 3> windows{};
  std::array<std::size_t, 3> extents{1, 1, 1};
};

/// Kernels of 1 to 7 taps, strides and dilations of 1 to 3, other padding at each side, from none
/// to beyond the kernel, one to three axes of space; never so few elements that a window leaves
/// nothing.
Problem random_problem(std::mt19937& random) {
  const auto up_to = [&](std::size_t most) { return random() % (most + 1); };
  Problem p;
  p.channels = {1 + up_to(4), 1 + up_to(2), 1 + up_to(2)};
  if (up_to(2) > 0) p.channels = {1, 1 + up_to(4), 1 + up_to(4)};
  p.images = 1 + up_to(2);
  const std::size_t axes = 1 + up_to(2);
  for (std::size_t axis = 3 - axes; axis < 3; ++axis) {
    Window& w = p.windows[axis];
    w = {1 + up_to(axes == 3 ? 2 : 6), 1 + up_to(2), 1 + up_to(2)};
    w.before = up_to(axes == 3 ? 2 : w.reach() + 1);
    w.after = up_to(axes == 3 ? 2 : w.reach() + 1);
    p.extents[axis] = 1 + up_to(axes == 1 ? 29 : axes == 2 ? 7 : 3);
    const std::size_t padded = w.before + p.extents[axis] + w.after;
    if (padded < w.reach()) p.extents[axis] += w.reach() - padded;
  }
  return p;
}

/// The extents [a, b, c, ...] of a tensor, and a block of one of them.
struct Cut {
  std::vector<std::size_t> extents;
  std::size_t axis;
  Interval block;

  /// Calls f(index of the whole, index of the part) for every element of the part.
  template <class F>
  void for_each(F f) const {
    std::size_t outer = 1, inner = 1;
    for (std::size_t i = 0; i < axis; ++i) outer *= extents[i];
    for (std::size_t i = axis + 1; i < extents.size(); ++i) inner *= extents[i];
    for (std::size_t o = 0; o < outer; ++o)
      for (std::size_t k = 0; k < block.size; ++k)
        for (std::size_t i = 0; i < inner; ++i)
          f((o * extents[axis] + block.offset + k) * inner + i, (o * block.size + k) * inner + i);
  }

  Numbers part_of(const Numbers& whole) const {
    std::size_t size = block.size;
    for (std::size_t i = 0; i < extents.size(); ++i) size *= i == axis ? 1 : extents[i];
    Numbers part(size);
    for_each([&](std::size_t in_whole, std::size_t in_part) { part[in_part] = whole[in_whole]; });
    return part;
  }

  /// Blocks of a value, or summands of it where several ranks hold an element.
  void add_to(Numbers& whole, const Numbers& part) const {
    for_each([&](std::size_t in_whole, std::size_t in_part) { whole[in_whole] += part[in_part]; });
  }
};

/// All tensors of a forward and a backward pass.
struct Tensors {
  Numbers x, w, b, dy;    // given
  Numbers y, dx, dw, db;  // found
};

/// What the kernel finds for what is given in `t`.
void run(const ConvolutionChannels& channels, const ConvolutionCall& call, Tensors& t) {
  Reference backend;
  Reference::Convolution<double> kernel(backend, channels);
  t.y.resize(t.dy.size());
  t.dx.resize(t.x.size());
  t.dw.resize(t.w.size());
  t.db.resize(t.b.size());
  kernel.forward(call, t.x.data(), {t.w.data(), 1}, t.b.data(), Activation::none, t.y.data());
  kernel.backward(call, t.x.data(), t.dy.data(), {t.w.data(), 1}, Write::replace, t.dw.data(),
                  t.db.data(), t.dx.data());
}

/// A tensor's cut of one rank; all of it where the split leaves it whole.
struct Share {
  Cut x, w, b, y;
  ConvolutionChannels channels;
  ConvolutionCall call;
  bool has_bias = true;  // a bias of a partial sum is the first rank's
};

class Trial {
 public:
  Trial(const Problem& problem, std::mt19937& random, bool reals) : p_(problem) {
    for (std::size_t i = 0; i < 3; ++i) outputs_[i] = p_.windows[i].outputs(p_.extents[i]);
    const Share all = whole();
    const auto made = [&](const Cut& cut) {
      std::size_t size = 1;
      for (const std::size_t extent : cut.extents) size *= extent;
      Numbers numbers(size);
      for (double& v : numbers)
        v = reals ? std::uniform_real_distribution(-1.0, 1.0)(random)
                  : static_cast<double>(random() % 5) - 2;
      return numbers;
    };
    given_.x = made(all.x);
    given_.w = made(all.w);
    given_.b = made(all.b);
    given_.dy = made(all.y);
    expected_ = given_;
    run(all.channels, all.call, expected_);
    // Sums of K products of numbers up to 1, in another order: 8 eps sqrt(K) |a| |b|, of which each
    // norm is at most sqrt(K).
    const auto k = static_cast<double>(std::max(
        {p_.channels.in * taps(), p_.channels.out * taps(), p_.images * all.call.output_plane()}));
    bound_ = reals ? 8 * 0x1p-52 * std::sqrt(k) * k : 0;
  }

  /// Every rank's share, or none if the problem cannot be split so.
  using Split = std::function<Share(const Trial&, Place)>;

  bool is_right(const Split& split, int ranks) const {
    Tensors sum{{},
                {},
                {},
                {},
                Numbers(given_.dy.size()),
                Numbers(given_.x.size()),
                Numbers(given_.w.size()),
                Numbers(given_.b.size())};
    for (int rank = 0; rank < ranks; ++rank) {
      const Share share = split(*this, {rank, ranks});
      Tensors mine{share.x.part_of(given_.x),
                   share.w.part_of(given_.w),
                   share.b.part_of(given_.b),
                   share.y.part_of(given_.dy),
                   {},
                   {},
                   {},
                   {}};
      if (!share.has_bias) std::fill(mine.b.begin(), mine.b.end(), 0.0);
      run(share.channels, share.call, mine);
      share.y.add_to(sum.y, mine.y);
      share.x.add_to(sum.dx, mine.dx);
      share.w.add_to(sum.dw, mine.dw);
      if (share.has_bias) share.b.add_to(sum.db, mine.db);
    }
    return equal(sum.y, expected_.y) && equal(sum.dx, expected_.dx) &&
           equal(sum.dw, expected_.dw) && equal(sum.db, expected_.db);
  }

  Share whole() const {
    const std::size_t in = p_.channels.groups * p_.channels.in;
    const std::size_t out = p_.channels.groups * p_.channels.out;
    const auto cut = [](std::vector<std::size_t> extents) {
      const Interval all{0, extents[0]};
      return Cut{std::move(extents), 0, all};
    };
    const auto& e = p_.extents;
    const auto& o = outputs_;
    Share share{cut({p_.images, in, e[0], e[1], e[2]}),
                cut({out, p_.channels.in, taps()}),
                cut({out}),
                cut({p_.images, out, o[0], o[1], o[2]}),
                p_.channels,
                {p_.images, {}}};
    for (std::size_t i = 0; i < 3; ++i)
      share.call.space[i] = detail::axis_here(p_.windows[i], {0, e[i]}, {0, o[i]});
    return share;
  }

  Share by_batch(Place place) const {
    Share share = whole();
    const Interval mine = block(p_.images, place);
    share.x.block = share.y.block = mine;
    share.call.images = mine.size;
    return share;
  }

  Share by_output(Place place) const {
    Share share = whole();
    const Interval mine = block(p_.channels.out, place);
    share.w.block = share.b.block = share.y.block = mine;
    share.y.axis = 1;
    share.channels.out = mine.size;
    return share;
  }

  Share by_input(Place place) const {
    Share share = whole();
    const Interval mine = block(p_.channels.in, place);
    share.x.block = share.w.block = mine;
    share.x.axis = share.w.axis = 1;
    share.channels.in = mine.size;
    share.has_bias = place.rank == 0;
    return share;
  }

  Share by_group(Place place) const {
    Share share = whole();
    const Interval mine = block(p_.channels.groups, place);
    const auto of = [&](std::size_t n) { return Interval{mine.offset * n, mine.size * n}; };
    share.x.block = of(p_.channels.in);
    share.w.block = share.b.block = share.y.block = of(p_.channels.out);
    share.x.axis = share.y.axis = 1;
    share.channels.groups = mine.size;
    return share;
  }

  Share by_space(std::size_t axis, Place place) const {
    Share share = whole();
    const Window& window = p_.windows[axis];
    const Interval held = window.held_by(place, p_.extents[axis]);
    const Interval mine = block(outputs_[axis], place);
    share.x.axis = share.y.axis = 2 + axis;
    share.x.block = held;
    share.y.block = mine;
    share.call.space[axis] = detail::axis_here(window, held, mine);
    return share;
  }

 private:
  static Interval block(std::size_t units, Place place) {
    return block_of({Axis::channel, units}, place);
  }
  std::size_t taps() const {
    return p_.windows[0].kernel * p_.windows[1].kernel * p_.windows[2].kernel;
  }
  bool equal(const Numbers& a, const Numbers& b) const {
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!(std::abs(a[i] - b[i]) <= bound_)) return false;
    return a.size() == b.size();
  }

  Problem p_;
  std::array<std::size_t, 3> outputs_{};
  Tensors given_, expected_;
  double bound_ = 0;
};

std::string to_string(const Problem& p) {
  std::string text = std::to_string(p.images) + " images, " + std::to_string(p.channels.groups) +
                     " groups of " + std::to_string(p.channels.in) + " -> " +
                     std::to_string(p.channels.out);
  for (std::size_t i = 0; i < 3; ++i)
    text += "; " + std::to_string(p.extents[i]) + " by " + shardwise::to_string(p.windows[i]);
  return text;
}

struct NamedSplit {
  std::string name;
  Trial::Split share;
};

/// The splits that a layer with this problem has.
std::vector<NamedSplit> splits_of(const Problem& p) {
  std::vector<NamedSplit> splits{{"batch", &Trial::by_batch}, {"group", &Trial::by_group}};
  if (p.channels.groups == 1) {
    splits.push_back({"output", &Trial::by_output});
    splits.push_back({"input", &Trial::by_input});
  }
  constexpr std::array names{"depth", "height", "width"};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (p.extents[axis] == 1 && p.windows[axis] == Window{}) continue;
    splits.push_back({names[axis], [axis](const Trial& trial, Place place) {
                        return trial.by_space(axis, place);
                      }});
  }
  return splits;
}

}  // namespace

TEST_CASE("random convolutions over 1 to 8 ranks, by every split") {
  constexpr int count = 2000;
  const unsigned first = testing::seed();
  std::mt19937 random(first);
  std::size_t compared = 0;
  for (int k = 0; k < count; ++k) {
    const Problem p = random_problem(random);
    const bool reals = k % 4 == 0;
    const Trial problem(p, random, reals);
    for (const NamedSplit& split : splits_of(p)) {
      for (int ranks = 1; ranks <= 8; ++ranks, ++compared) {
        INFO("seed " << first << ", number " << k << ": " << to_string(p) << ", by " << split.name
                     << " over " << ranks << " ranks" << (reals ? ", reals" : ""));
        REQUIRE(problem.is_right(split.share, ranks));
      }
    }
  }
  MESSAGE(count << " random convolutions from SHARDWISE_TEST_SEED=" << first << ", " << compared
                << " splits of them compared with one rank");
}
