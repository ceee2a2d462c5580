// The next token of texts by a GPT-2 with a cache of keys and values, see
// models/gpt_tokens_model.hpp, on one thread or two thread ranks: of texts that were read before,
// or with `whole` of texts that are read in the same call. It contends as turns.hpp says, or writes
// the problem: token ids, all parameters, and as y the logits of the last token, computed in float
// on one rank.

#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "models/gpt_tokens_model.hpp"
#include "peers/on_two_threads.hpp"
#include "peers/ours.hpp"
#include "peers/results.hpp"
#include "peers/turns.hpp"
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

struct Problem {
  bool is_whole;  ///< whether a call reads the whole texts
  std::filesystem::path folder;
  Text text;
};

/// The first rank, which has the first logits, says how far they are from exact.
template <class T, class C, class Next>
void contend(C& ranks, const Next& next, const Problem& problem) {
  const sw::detail::onednn::ThreadLimit one_thread(1);
  const bool speaks = ranks.rank() == 0;
  if (speaks) peers::print_versions();
  auto model =
      bench::writer<T>(sw::last_logits(sw::gpt2(gpt2_sizes.config())), ranks, problem.text);
  if (!problem.is_whole) model.read_text();
  const auto call = [&] { problem.is_whole ? model.read_at_once() : model(); };
  call();
  const std::vector<float> exact = peers::load(problem.folder, "y", logits_of(problem.text));
  std::vector<T> got;
  std::vector<float> wanted;
  const std::size_t here = model.logits.size() / problem.text.sequences;
  for (std::size_t i = 0; speaks && i < model.logits.size(); ++i) {
    got.push_back(model.logits.data()[i]);
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
    if (words.size() == 4 && words[0] == "make")
      make(words[1], text_of({words[2], words[3]}));
    else if (words.size() == 6 && (words[0] == "float" || words[0] == "bf16"))
      (words[0] == "float" ? contend<float> : contend<sw::bf16>)(words[1],
                                                                 {words[2] == "whole", words[3],
                                                                  text_of({words[4], words[5]})});
    else
      throw std::runtime_error(
          "usage: peer_gpt_tokens make FOLDER SEQUENCES BEHIND, or peer_gpt_tokens float|bf16 1|2 "
          "next|whole FOLDER SEQUENCES BEHIND");
  });
}
