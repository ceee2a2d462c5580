// The perceptron as one would write it for two processes without any library of layers: oneDNN's
// products of half of the hidden features each, and MPI_Allreduce.
//
//     mpiexec -n 2 peer_mpi_by_hand FOLDER

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

#include "kernels/by_hand.hpp"
#include "peers/mpi_turns.hpp"
#include "peers/results.hpp"
#include "shardwise/backend/onednn/onednn.hpp"

namespace {

namespace sw = shardwise;
using Values = std::vector<float>;

constexpr std::size_t in = 1024, hidden = 4096, out = 1024;

sw::Shape matrix(std::size_t rows, std::size_t columns) {
  return {{sw::Axis::output, rows}, {sw::Axis::input, columns}};
}

sw::Shape vector(std::size_t n) { return {{sw::Axis::output, n}}; }

/// Columns [first, first + count) of a matrix with `width` of them.
Values columns(const Values& all, std::size_t width, std::size_t first, std::size_t count) {
  Values part;
  for (std::size_t row = 0; row < all.size(); row += width) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row + first);
    part.insert(part.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
  }
  return part;
}
Values rows(const Values& all, std::size_t width, std::size_t first, std::size_t count) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first * width);
  return {begin, begin + static_cast<std::ptrdiff_t>(count * width)};
}

/// One rank's half. Forward has its weights packed once, as for use; in training they change with
/// every step and are used as they lie.
class Half {
 public:
  Half(int rank, const std::filesystem::path& folder)
      : folder_(folder),
        first_(static_cast<std::size_t>(rank) * mine),
        count_(peers::shape_of_x(folder)[0].extent()),
        x_(load("x", matrix(count_, in))),
        dy_(load("dy", matrix(count_, out))),
        w1_(rows(load("0.weight", matrix(hidden, in)), in, first_, mine)),
        b1_(rows(load("0.bias", vector(hidden)), 1, first_, mine)),
        w2_(columns(load("2.weight", matrix(out, hidden)), hidden, first_, mine)),
        b2_(load("2.bias", vector(out))),
        h_(count_ * mine),
        y_(count_ * out),
        dh_(h_.size()),
        dw1_(w1_.size()),
        db1_(b1_.size()),
        dw2_(w2_.size()),
        db2_(b2_.size()) {
    if (rank != 0) std::fill(b2_.begin(), b2_.end(), 0.0F);  // the sum has it once
    const auto m = static_cast<dnnl_dim_t>(count_);
    constexpr dnnl_dim_t i = in, n = mine, o = out;
    using by_hand::Weights;
    up_packed_ = by_hand::matmul(library_, m, i, n, x_.data(), w1_.data(), true, h_.data(),
                                 b1_.data(), true, Weights::packed);
    down_packed_ = by_hand::matmul(library_, m, n, o, h_.data(), w2_.data(), true, y_.data(),
                                   b2_.data(), false, Weights::packed);
    up_ = by_hand::inner_product(library_, m, i, n, x_.data(), w1_.data(), h_.data(), b1_.data(),
                                 true);
    down_ = by_hand::inner_product(library_, m, n, o, h_.data(), w2_.data(), y_.data(), b2_.data(),
                                   false);
    weight2_ = by_hand::inner_product_backward(library_, m, n, o, h_.data(), w2_.data(), dy_.data(),
                                               dw2_.data(), db2_.data());
    hidden_ = by_hand::inner_product_backward(library_, m, n, o, dh_.data(), w2_.data(), dy_.data(),
                                              nullptr, nullptr);
    weight1_ = by_hand::inner_product_backward(library_, m, i, n, x_.data(), w1_.data(), dh_.data(),
                                               dw1_.data(), db1_.data());
  }

  void run(bool training) {
    training ? up_() : up_packed_();
    training ? down_() : down_packed_();
    MPI_Allreduce(MPI_IN_PLACE, y_.data(), static_cast<int>(y_.size()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    if (!training) return;
    weight2_();
    hidden_();
    for (std::size_t e = 0; e < dh_.size(); ++e) dh_[e] = h_[e] > 0 ? dh_[e] : 0.0F;
    weight1_();
  }

  /// Throws unless this half is that of the folder's results.
  void require_results(bool speaks) {
    const Values y = load("y", matrix(count_, out));
    const auto require = [&](const char* name, const Values& got, const Values& exact) {
      peers::require_exact<float>(name, got, exact, speaks);
    };
    run(false);
    require("y of evaluate", y_, y);
    run(true);
    require("y", y_, y);
    require("grad.0.weight", dw1_,
            rows(load("grad.0.weight", matrix(hidden, in)), in, first_, mine));
    require("grad.0.bias", db1_, rows(load("grad.0.bias", vector(hidden)), 1, first_, mine));
    require("grad.2.weight", dw2_,
            columns(load("grad.2.weight", matrix(out, hidden)), hidden, first_, mine));
    require("grad.2.bias", db2_, load("grad.2.bias", vector(out)));
  }

 private:
  static constexpr std::size_t mine = hidden / 2;

  Values load(const char* name, const sw::Shape& shape) const {
    return peers::load(folder_, name, shape);
  }

  std::filesystem::path folder_;
  by_hand::Library library_;
  std::size_t first_, count_;
  Values x_, dy_, w1_, b1_, w2_, b2_;
  Values h_, y_, dh_, dw1_, db1_, dw2_, db2_;
  by_hand::Product up_packed_, down_packed_, up_, down_, weight2_, hidden_, weight1_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 2 || size != 2)
      throw std::runtime_error("usage: mpiexec -n 2 peer_mpi_by_hand FOLDER");
    const sw::detail::onednn::ThreadLimit one_thread(1);
    if (rank == 0) peers::print_mpi_version();
    Half half(rank, argv[1]);
    half.require_results(rank == 0);
    peers::take_turns(rank == 0, peers::next_turn_of_job,
                      [&](bool training) { half.run(training); });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
