// The next token of texts by a GPT-2 of 124 million parameters, with a cache of keys and values:
// 12 blocks of 12 heads and 768 features, 50,257 tokens. One rank (time of the thread) against the
// same by hand, and against the time of reading all weights, keys and values once, a sum over as
// many bytes. Two thread ranks (wall time) against one. And a prompt of 1000 tokens, with the
// logits of all of them or of the last one. Speed 1 is that of the first line.
//
//     bench_models_gpt_tokens [--rounds=N] [--benchmark_filter='float/1 x 1000/one']

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/by_hand.hpp"
#include "models/gpt_tokens_by_hand.hpp"
#include "models/gpt_tokens_model.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/models/last_logits.hpp"
#include "support/one_and_two_ranks.hpp"
#include "support/program.hpp"
#include "support/read_all.hpp"

namespace {

namespace sw = shardwise;

constexpr double sample_seconds = 1e-3;
using bench::gpt2_sizes;
using bench::Text;
using bench::writer;

/// All parameters of a writer, each whole.
template <class T, class W>
std::vector<std::vector<T>> parameters_of(W& writer) {
  std::vector<std::vector<T>> all;
  writer.for_each_parameter([&](const std::string&, const auto& whole) {
    all.emplace_back(whole.data(), whole.data() + whole.size());
  });
  return all;
}

/// The logits of a writer must be these, up to the rounding of T in all layers.
template <class T, class W>
void require_logits(const std::string& who, const std::vector<float>& exact, const W& writer) {
  const auto& logits = writer.logits;
  const sw::Interval mine = sw::local_block<typename W::Logits>(logits.global(), logits.place());
  double difference = 0, all = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float e = exact[i / mine.size * gpt2_sizes.vocabulary + mine.offset + i % mine.size];
    difference += std::pow(static_cast<double>(static_cast<float>(logits.data()[i]) - e), 2);
    all += std::pow(static_cast<double>(e), 2);
  }
  const double share = std::sqrt(difference / all);
  if (share <= (sizeof(T) == 2 ? 2e-2 : 1e-5)) return;
  throw std::runtime_error(who +
                           ": logits are not those that were worked out here, by a share of " +
                           std::to_string(share));
}

/// As many keys and values as a text has.
template <class T>
std::vector<T> as_many_as(const Text& text, int ranks) {
  return std::vector<T>(2 * gpt2_sizes.layers * text.sequences * text.behind * gpt2_sizes.features /
                        static_cast<std::size_t>(ranks));
}

template <class W, class T>
void read_once(W& writer, const std::vector<T>& keys_and_values) {
  bench::read_all(writer.model.values());
  bench::read_all(std::span(keys_and_values));
}

template <class T>
double gigabytes(const Text& text, std::size_t parameters) {
  return 1e-9 * static_cast<double>((parameters + as_many_as<T>(text, 1).size()) * sizeof(T));
}

template <class T>
std::vector<bench::Timing> on_one_rank(const Text& text, int rounds) {
  sw::SingleRank alone;
  auto model = writer<T>(sw::gpt2(gpt2_sizes.config()), alone, text);
  const by_hand::Library library;
  by_hand::GptWeights<T> weights(parameters_of<T>(model));
  by_hand::GptCache<T> cache(gpt2_sizes, text.sequences, text.behind + 1);
  model.read_text();
  {
    by_hand::GptTokens<T> read(library, gpt2_sizes, text.sequences, text.of_piece(), weights,
                               cache);
    for (std::size_t i = 0; i < Text::pieces; ++i) read(text.piece(i), i * text.of_piece());
  }
  by_hand::GptTokens<T> hand(library, gpt2_sizes, text.sequences, 1, weights, cache);
  const std::int32_t* const next = text.piece(Text::pieces);
  hand(next, text.behind);
  model();
  require_logits<T>("model", {hand.logits.begin(), hand.logits.end()}, model);
  const std::vector<T> as_many = as_many_as<T>(text, 1);
  return bench::with_speed(bench::interleave({{"read once", [&] { read_once(model, as_many); }},
                                              {"by hand", [&] { hand(next, text.behind); }},
                                              {"model", [&] { model(); }}},
                                             {rounds, sample_seconds, bench::Clock::thread}),
                           "GB/s", gigabytes<T>(text, model.model.values().size()));
}

template <class T>
std::vector<bench::Timing> on_two_ranks(sw::ThreadCommunicator& ranks, const Text& text,
                                        int rounds) {
  sw::SingleRank alone;
  const auto net = sw::gpt2(gpt2_sizes.config());
  std::optional<decltype(writer<T>(net, alone, text))> one;  // on the first rank
  std::vector<float> exact(text.sequences * gpt2_sizes.vocabulary);
  if (ranks.rank() == 0) {
    one.emplace(net, alone, text);
    one->read_text();
    (*one)();
    std::copy_n(one->logits.data(), exact.size(), exact.begin());
  }
  ranks.broadcast(std::span(exact), 0);
  auto two = writer<T>(net, ranks, text);
  two.read_text();
  two();
  require_logits<T>("two ranks", exact, two);
  const std::vector<T> as_many = as_many_as<T>(text, ranks.size());
  const std::size_t parameters = one ? one->model.values().size() : 0;
  return bench::with_speed(
      bench::interleave(ranks,
                        {{"read once, each its half", [&] { read_once(two, as_many); }},
                         bench::on_first(ranks, "one rank on one core", [&] { (*one)(); }),
                         {"two ranks", [&] { two(); }}},
                        rounds, sample_seconds),
      "GB/s", gigabytes<T>(text, parameters));
}

template <class T>
std::vector<bench::Timing> of_prompt(const Text& text, int rounds) {
  sw::SingleRank alone;
  auto all = writer<T>(sw::gpt2(gpt2_sizes.config()), alone, text);
  auto last = writer<T>(sw::last_logits(sw::gpt2(gpt2_sizes.config())), alone, text);
  return bench::interleave({{"logits of all tokens", [&] { all.read_at_once(); }},
                            {"logits of the last token", [&] { last.read_at_once(); }}},
                           {rounds, sample_seconds, bench::Clock::thread});
}

template <class T>
void add(bench::Program& program, const std::string& dtype) {
  using Numbers = std::pair<std::size_t, std::size_t>;
  for (const auto& [sequences, behind] :
       program.sizes<Numbers>({{1, 8}, {1, 256}, {1, 1000}, {8, 8}, {8, 256}, {8, 1000}}, {1, 256}))
    bench::add_one_and_two(
        program,
        "gpt_tokens/" + dtype + '/' + std::to_string(sequences) + " x " + std::to_string(behind),
        [=, &program, sequences = sequences, behind = behind] {
          return on_one_rank<T>(Text(sequences, behind), program.rounds());
        },
        [=, &program, sequences = sequences, behind = behind](sw::ThreadCommunicator& ranks) {
          return on_two_ranks<T>(ranks, Text(sequences, behind), program.rounds());
        });
  for (const std::size_t tokens : program.sizes<std::size_t>({1000}, 200))
    program.add("gpt_tokens/" + dtype + "/prompt of " + std::to_string(tokens), [=, &program] {
      return bench::on_one_rank([&] { return of_prompt<T>(Text(1, tokens), program.rounds()); });
    });
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 15);
  program.note("oneDNN instruction set", by_hand::instruction_set());
  for (const std::string& dtype : program.sizes<std::string>({"float", "bf16"})) {
    if (dtype == "float") add<float>(program, dtype);
    if (dtype == "bf16" && by_hand::multiplies_bf16()) add<sw::bf16>(program, dtype);
  }
  return program.run();
}
