// The next token of texts by a GPT-2 with a cache of keys and values, see
// models/gpt_tokens_model.hpp, on one thread or two thread ranks: of texts that were read before,
// with `whole` of texts that are read in the same call, or with `load` by a model that is made and
// loaded in the same call, too. It contends as turns.hpp says, or writes the problem: token ids,
// all parameters, and as y the logits of the last token, computed in float on one rank; with
// `make_files` also what `load` reads.

#include <cstddef>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "models/gpt_tokens_model.hpp"
#include "peers/on_two_threads.hpp"
#include "peers/ours.hpp"
#include "peers/results.hpp"
#include "peers/turns.hpp"
#include "shardwise/checkpoint/weights.hpp"
#include "shardwise/interop/npy.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/models/last_logits.hpp"

namespace {

namespace sw = shardwise;
using bench::gpt2_sizes;
using bench::Text;

Text text_of(const std::vector<std::string>& words) {
  return Text(std::stoul(words.at(0)), std::stoul(words.at(1)));
}

sw::Shape logits_of(const Text& text) {
  return {{sw::Axis::batch, text.sequences}, {sw::Axis::feature, gpt2_sizes.vocabulary}};
}

template <class T>
std::filesystem::path weights_in(const std::filesystem::path& folder) {
  return folder / (sizeof(T) == 2 ? "bf16.safetensors" : "float.safetensors");
}

void make(const std::filesystem::path& folder, const Text& text) {
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& name, const auto* data, const sw::Shape& shape) {
    using T = std::remove_cvref_t<decltype(*data)>;
    sw::write_npy(peers::file_of(folder, name), sw::View<const T, sw::Invariant>(data, shape, {}));
  };
  sw::SingleRank alone;
  auto model = bench::writer<float>(sw::gpt2(gpt2_sizes.config()), alone, text);
  model.for_each_parameter([&](const std::string& name, const auto& whole) {
    write(name, whole.data(), whole.global());
  });
  model.read_text();
  model();
  write("ids", text.ids.data(), {{sw::Axis::batch, text.ids.size()}});
  write("y", model.logits.data(), logits_of(text));
}

template <class T>
void write_weights(const std::filesystem::path& folder, const Text& text) {
  sw::SingleRank alone;
  auto model = bench::writer<T>(sw::last_logits(sw::gpt2(gpt2_sizes.config())), alone, text);
  sw::save_weights(weights_in<T>(folder), model.model);
}

struct Problem {
  std::string what;  ///< a call does: next, whole, or load
  std::filesystem::path folder;
  Text text;
};

/// The first rank, which has the first logits, says how far they are from exact.
template <class T, class C, class Next>
void contend(C& ranks, const Next& next, const Problem& problem) {
  const sw::detail::onednn::ThreadLimit one_thread(1);
  const bool speaks = ranks.rank() == 0;
  if (speaks) peers::print_versions();
  const auto net = sw::last_logits(sw::gpt2(gpt2_sizes.config()));
  std::optional<bench::Writer<std::remove_const_t<decltype(net)>, T, C>> model;
  const auto load = [&] {
    model.reset();
    model.emplace(net, ranks, problem.text, sw::ModelOptions{.to_be_loaded = true});
    sw::load_weights(weights_in<T>(problem.folder), model->model);
  };
  const auto call = [&] {
    if (problem.what == "next") return (*model)();
    if (problem.what == "load") load();
    model->read_at_once();
  };
  if (problem.what != "load") model.emplace(net, ranks, problem.text);
  if (problem.what == "next") model->read_text();
  call();
  const std::vector<float> exact = peers::load(problem.folder, "y", logits_of(problem.text));
  std::vector<T> got;
  std::vector<float> wanted;
  const auto& logits = model->logits;
  const std::size_t here = logits.size() / problem.text.sequences;
  for (std::size_t i = 0; speaks && i < logits.size(); ++i) {
    got.push_back(logits.data()[i]);
    wanted.push_back(exact[i / here * gpt2_sizes.vocabulary + i % here]);
  }
  if (speaks) peers::require_close<T>("y", got, wanted, sizeof(T) == 2 ? 1.0 / 32 : 1e-5, speaks);
  peers::take_turns(speaks, next, [&](bool) { call(); });
}

template <class T>
void contend(const std::string& threads, const Problem& problem) {
  if (threads == "2")
    return peers::on_two_threads(
        [&](sw::ThreadCommunicator& ranks, const auto& next) { contend<T>(ranks, next, problem); });
  sw::SingleRank alone;
  contend<T>(alone, peers::read_turn, problem);
}

}  // namespace

int main(int argc, char** argv) {
  return peers::contend_alone([&] {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() == 4 && (words[0] == "make" || words[0] == "make_files")) {
      const Text text = text_of({words[2], words[3]});
      make(words[1], text);
      if (words[0] == "make") return;
      write_weights<float>(words[1], text);
      write_weights<sw::bf16>(words[1], text);
    } else if (words.size() == 6 && (words[0] == "float" || words[0] == "bf16")) {
      const Problem problem{words[2], words[3], text_of({words[4], words[5]})};
      words[0] == "float" ? contend<float>(words[1], problem)
                          : contend<sw::bf16>(words[1], problem);
    } else {
      throw std::runtime_error(
          "usage: peer_gpt_tokens make|make_files FOLDER SEQUENCES BEHIND, or peer_gpt_tokens "
          "float|bf16 1|2 next|whole|load FOLDER SEQUENCES BEHIND");
    }
  });
}
