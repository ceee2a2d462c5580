// A whole training step of the GPT of models/gpt_model.hpp, with AdamW, on two thread ranks. It
// contends as turns.hpp says, or writes the problem: token ids, labels, all parameters at the
// beginning, and as y the losses of the first steps, computed on one rank.

#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "models/gpt_model.hpp"
#include "peers/on_two_threads.hpp"
#include "peers/ours.hpp"
#include "peers/results.hpp"
#include "peers/turns.hpp"
#include "shardwise/backend/onednn/onednn.hpp"

namespace {

namespace sw = shardwise;

constexpr bench::GptSizes sizes;
constexpr std::size_t steps = 4;
const sw::Shape losses_shape{{sw::Axis::batch, steps}};

/// The losses of the first steps.
template <class C>
std::vector<float> losses_of(bench::Gpt<C>& model) {
  std::vector<float> losses;
  for (std::size_t step = 0; step < steps; ++step) losses.push_back(static_cast<float>(model()));
  return losses;
}

void make(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const bench::GptBatch batch(sizes);
  const auto write = [&](const std::string& name, const auto* data, const sw::Shape& shape) {
    using T = std::remove_cvref_t<decltype(*data)>;
    sw::write_npy(peers::file_of(folder, name), sw::View<const T, sw::Invariant>(data, shape, {}));
  };
  write("ids", batch.ids.data(), sizes.text());
  write("labels", batch.labels.data(), sizes.text());
  sw::SingleRank alone;
  bench::Gpt<sw::SingleRank> model(alone, sizes, batch);
  model.for_each_parameter([&](const std::string& name, const auto& whole) {
    write(name, whole.data(), whole.global());
  });
  const std::vector<float> losses = losses_of(model);
  write("y", losses.data(), losses_shape);
}

void contend(const std::filesystem::path& folder) {
  peers::on_two_threads([&](sw::ThreadCommunicator& ranks, const auto& next) {
    const sw::detail::onednn::ThreadLimit one_thread(1);
    const bool speaks = ranks.rank() == 0;
    if (speaks) peers::print_versions();
    const bench::GptBatch batch(sizes);
    bench::Gpt<sw::ThreadCommunicator> model(ranks, sizes, batch);
    const std::vector<float> losses = losses_of(model);
    peers::require_close<float>("y", losses, peers::load(folder, "y", losses_shape), 1e-5, speaks);
    peers::take_turns(speaks, next, [&](bool) { model(); });
  });
}

}  // namespace

int main(int argc, char** argv) {
  return peers::contend_alone([&] {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() != 2 || (words[0] != "make" && words[0] != "contend"))
      throw std::runtime_error("usage: peer_gpt make|contend FOLDER");
    words[0] == "make" ? make(words[1]) : contend(words[1]);
  });
}
