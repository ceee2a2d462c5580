// The kernel of attention without projections: 8 heads of 64 features, one sample, one thread. It
// contends in a dtype as turns.hpp says, or writes the problem.

#include "shardwise/backend/attention.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "peers/ours.hpp"
#include "peers/results.hpp"
#include "peers/turns.hpp"
#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/sequences.hpp"

namespace {

namespace sw = shardwise;

constexpr std::size_t heads = 8, head_size = 64;

struct Sizes {
  std::size_t rows;
  bool causal;
  std::size_t key_heads;

  sw::Shape of(std::size_t count) const {
    return {{sw::Axis::sequence, rows}, {sw::Axis::feature, count * head_size}};
  }
  std::array<std::pair<std::string, sw::Shape>, 4> operands() const {
    return {{{"q", of(heads)}, {"k", of(key_heads)}, {"v", of(key_heads)}, {"dy", of(heads)}}};
  }
};

/// The operands and the results of one call.
template <class T>
struct Call {
  Call(const std::filesystem::path& folder, const Sizes& s) : sizes(s) {
    for (std::size_t i = 0; const auto& [name, shape] : sizes.operands()) {
      const std::vector<float> values = peers::load(folder, name, shape);
      in[i++] = rounded(values);
    }
    y = dq = in[0];
    dk = dv = in[1];
  }

  auto operands() const {
    const sw::TokenRows all{1, sizes.rows, sizes.rows, 0, 0};
    return sw::detail::AttentionOperands<T, sw::RandomStream>{
        {all, all, sw::Sequences(sizes.rows), sizes.causal, 0},
        {head_size, heads / sizes.key_heads, heads, heads, 0, sizes.key_heads, 0},
        0.125F,  // 1 / √(head_size)
        0,
        {sw::RandomStream(sw::Seed{1}, 0, 0), 0, 0},
        in[0].data(),
        in[1].data(),
        in[2].data()};
  }
  const T* dy() const { return in[3].data(); }
  std::array<std::pair<std::string, std::vector<T>*>, 4> results() {
    return {{{"y", &y}, {"grad.q", &dq}, {"grad.k", &dk}, {"grad.v", &dv}}};
  }

  static std::vector<T> rounded(const std::vector<float>& values) {
    std::vector<T> numbers;
    for (const float value : values) numbers.push_back(static_cast<T>(value));
    return numbers;
  }

  Sizes sizes;
  std::array<std::vector<T>, 4> in;  // q, k, v, dy
  std::vector<T> y, dq, dk, dv;
};

/// By plain loops in double.
void compute(Call<double>& call) {
  namespace loops = sw::detail;
  using Stream = sw::RandomStream;
  const auto of = call.operands();
  const std::size_t rows = call.sizes.rows;
  const loops::AttentionForward<double, Stream> forward{of, call.y.data()};
  for (std::size_t i = 0; i < rows * heads; ++i) forward(i);
  std::vector<loops::SoftmaxRow<double>> softmax(rows * heads);
  const loops::AttentionSlopes<double, Stream> slopes{of, call.dy(), softmax.data()};
  const loops::AttentionBackwardQueries<double, Stream> queries{slopes, call.dq.data()};
  for (std::size_t i = 0; i < rows * heads; ++i) queries(i);
  const loops::AttentionBackwardKeys<double, Stream> keys{slopes, call.dk.data(), call.dv.data()};
  for (std::size_t i = 0; i < rows * call.sizes.key_heads; ++i) keys(i);
}

void make(const std::filesystem::path& folder, const Sizes& sizes) {
  std::filesystem::create_directories(folder);
  for (std::uint64_t number = 0; const auto& [name, shape] : sizes.operands())
    sw::write_npy(peers::file_of(folder, name), peers::whole_numbers(shape, number++).view());
  Call<double> call(folder, sizes);
  compute(call);
  for (const auto& [name, values] : call.results()) {
    const std::size_t count = values->size() / (sizes.rows * head_size);
    sw::Tensor<float, sw::Invariant> rounded(sizes.of(count));
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
    const std::size_t count = values->size() / (sizes.rows * head_size);
    const std::vector<float> exact = peers::load(folder, name, sizes.of(count));
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
    const Sizes sizes{std::stoul(words[2]), words[3] == "causal", std::stoul(words[4])};
    if (what == "make") return make(words[1], sizes);
    what == "float" ? contend<float>(words[1], sizes) : contend<sw::bf16>(words[1], sizes);
  });
}
