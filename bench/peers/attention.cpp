// The kernel of attention without projections: 8 heads of 64 features, one sample, one thread. It
// contends in a dtype as turns.hpp says, or writes the problem.

#include <array>
#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/attention_call.hpp"
#include "peers/ours.hpp"
#include "peers/results.hpp"
#include "peers/turns.hpp"
#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/core/shape.hpp"

namespace {

namespace sw = shardwise;

using Sizes = bench::AttentionSizes;
constexpr std::array<const char*, 4> operands{"q", "k", "v", "dy"};

sw::Shape shape_of(const Sizes& sizes, std::size_t some_heads) {
  return {{sw::Axis::sequence, sizes.rows}, {sw::Axis::feature, some_heads * sizes.head}};
}

template <class T>
struct Call : bench::AttentionCall<T> {
  Call(const std::filesystem::path& folder, const Sizes& sizes)
      : bench::AttentionCall<T>(sizes, [&](std::size_t i, std::size_t heads) {
          return peers::load(folder, operands[i], shape_of(sizes, heads));
        }) {}

  std::array<std::pair<std::string, std::vector<T>*>, 4> results() {
    return {{{"y", &this->y}, {"grad.q", &this->dq}, {"grad.k", &this->dk}, {"grad.v", &this->dv}}};
  }
};

/// By plain loops in double.
void compute(Call<double>& call) {
  sw::Reference loops;
  const auto of = call.operands();
  std::vector<std::byte> memory(sw::detail::softmax_bytes(of));
  sw::detail::attention_by_loops(loops, of, call.y.data());
  sw::detail::attention_gradients_by_loops(
      loops, sw::detail::attention_slopes(of, call.dy(), memory.data()), call.dq.data(),
      call.dk.data(), call.dv.data());
}

void make(const std::filesystem::path& folder, const Sizes& sizes) {
  std::filesystem::create_directories(folder);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const sw::Shape shape = shape_of(sizes, sizes.heads_of_operands()[i]);
    sw::write_npy(peers::file_of(folder, operands[i]), peers::whole_numbers(shape, i).view());
  }
  Call<double> call(folder, sizes);
  compute(call);
  for (const auto& [name, values] : call.results()) {
    const std::size_t count = values->size() / (sizes.rows * sizes.head);
    sw::Tensor<float, sw::Invariant> rounded(shape_of(sizes, count));
    for (std::size_t i = 0; i < values->size(); ++i)
      rounded.data()[i] = static_cast<float>((*values)[i]);
    sw::write_npy(peers::file_of(folder, name), rounded.view());
  }
}

template <class T>
void contend(const std::filesystem::path& folder, const Sizes& sizes) {
  peers::print_versions();
  sw::OneDnn backend;
  sw::OneDnn::Attention<T> kernel(backend);
  Call<T> call(folder, sizes);
  const auto run = [&](bool training) {
    kernel.forward(call.operands(), call.y.data());
    if (training)
      kernel.backward(call.operands(), call.dy(), call.dq.data(), call.dk.data(), call.dv.data());
  };
  run(true);
  constexpr bool of_float = std::is_same_v<T, float>;
  for (const auto& [name, values] : call.results()) {
    const std::size_t count = values->size() / (sizes.rows * sizes.head);
    const std::vector<float> exact = peers::load(folder, name, shape_of(sizes, count));
    peers::require_close<T>(name, *values, exact, of_float ? 1e-5 : peers::bound<T>(name), true);
  }
  peers::take_turns(true, peers::read_turn, run);
}

}  // namespace

int main(int argc, char** argv) {
  return peers::contend_alone([&] {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const std::string what = words.empty() ? "" : words[0];
    if (words.size() != 5 || (what != "make" && what != "float" && what != "bf16"))
      throw std::runtime_error(
          "usage: peer_attention make|float|bf16 FOLDER ROWS full|causal KEYHEADS");
    const Sizes sizes{std::stoul(words[2]), words[3] == "causal", 8, std::stoul(words[4])};
    if (what == "make") return make(words[1], sizes);
    what == "float" ? contend<float>(words[1], sizes) : contend<sw::bf16>(words[1], sizes);
  });
}
