// A generator writes what its model writes without a cache, whatever the number of ranks, and
// whichever sequences are in the batch; an error changes nothing.

#include "ranks/generate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/comm/timeout.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/layers/class_token.hpp"
#include "shardwise/layers/embedding.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/models/last_logits.hpp"
#include "support/count_allocations.hpp"
#include "support/messages.hpp"

using namespace testing::text;
using testing::check_mentions;
using testing::message_of;

namespace {

// begin: serve
/// Continues prompts by `count` tokens each until there is an empty one. On rank 0 `next()` returns
/// a prompt, which may take hours, and `answer(tokens)` gets the text.
template <class M, class Next, class Answer>
void serve(M& model, std::size_t count, Next next, Answer answer) {
  auto& ranks = model.ranks();
  Generator generator(model, {.sequences = 1, .tokens = 64});
  for (Tokens text;;) {
    std::int64_t size = 0;
    if (ranks.rank() == 0) {
      text = next();
      size = static_cast<std::int64_t>(text.size());
    }
    patiently([&] { ranks.broadcast(std::span(&size, 1), 0); });
    if (size == 0) return;
    text.resize(static_cast<std::size_t>(size));
    ranks.broadcast(std::span(text), 0);
    std::optional<std::size_t> number;
    try {
      number = generator.add(text);
      for (std::size_t i = 0; i < count; ++i) text.push_back(generator.step()[0].id);
    } catch (const argument_error&) {
      text.clear();  // a prompt that the generator or the model refuses, on every rank
    }
    if (number) generator.end(*number);
    if (ranks.rank() == 0) answer(text);
  }
}
// end: serve

constexpr Sampling greedy{};
constexpr Sampling drawn{.temperature = 1.5, .top_k = 12, .top_p = 0.95, .seed = Seed{8}};

/// The three texts on 1 to 8 ranks, with prompts in pieces of 1 to 8 tokens, against one rank that
/// reads all anew for each token.
template <class T, std::size_t Window, class Parallel = TensorParallel, Layout Logits = Invariant>
void check_texts(const Sampling& sampling, const std::vector<int>& counts) {
  Tokens texts[3];
  for (std::size_t i = 0; i < 3; ++i)
    texts[i] = expected<T, Window>(prompts[i], i, written[i], sampling);
  for (const int ranks : counts) {
    CAPTURE(ranks);
    run_ranks(ranks, [&](ThreadCommunicator& group) {
      Writer<T, Window, Reference, ThreadCommunicator, Parallel, Logits> model(group);
      const Texts of = write(model, sampling, static_cast<std::size_t>(ranks));
      for (std::size_t i = 0; i < 3; ++i) {
        CAPTURE(i);
        CHECK(of.texts[i] == texts[i]);
        const auto behind = texts[i].begin() + static_cast<std::ptrdiff_t>(prompts[i].size());
        CHECK(of.generated[i] == Tokens(behind, texts[i].end()));
      }
    });
  }
}

// begin: several
/// Continues each text until its token `last`, or to 18 tokens; two texts at a time.
template <class M>
std::vector<Tokens> completed(M& model, std::vector<Tokens> texts, std::int32_t last) {
  Generator generator(model, {.sequences = 2, .tokens = 18},
                      {.temperature = 1.5, .top_k = 12, .top_p = 0.95, .seed = Seed{8}});
  std::size_t begun = 0, ended = 0;
  while (ended < texts.size()) {
    for (; begun < texts.size() && begun - ended < 2; ++begun) generator.add(texts[begun]);
    for (const auto& [number, id] : generator.step()) {
      texts[number].push_back(id);
      if (id != last && texts[number].size() < 18) continue;
      generator.end(number);
      ++ended;
    }
  }
  return texts;
}
// end: several

const std::vector<int> all_counts{1, 2, 3, 4, 5, 6, 7, 8};

}  // namespace

TEST_CASE_TEMPLATE("texts are those without a cache", T, float, double) {
  for (const Sampling& sampling : {greedy, drawn}) {
    check_texts<T, 0>(sampling, all_counts);
    check_texts<T, 3>(sampling, all_counts);
  }
}

TEST_CASE("logits need not be whole on each rank, and tokens of the stream neither") {
  check_texts<double, 0, TensorParallel, TensorParallel::logits>(drawn, {1, 2, 3, 8});
  check_texts<double, 0, ContextParallel, ContextParallel::logits>(drawn, {1, 2, 3, 8});
}

TEST_CASE("a window may be a number of the run, over split tokens too") {
  CHECK(expected<double, dynamic>(prompt(5), 0, 12, drawn) ==
        expected<double, 3>(prompt(5), 0, 12, drawn));
  check_texts<double, dynamic>(drawn, {1, 3, 8});
  check_texts<double, dynamic, ContextParallel, ContextParallel::logits>(drawn, {1, 2, 3, 8});
}

TEST_CASE("texts end at a token, and others take their places") {
  constexpr std::int32_t last = 9;
  std::vector<Tokens> texts{prompt(5), prompt(2), prompt(17), prompt(4), prompt(7, 3), prompt(1)};
  std::vector<Tokens> whole;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::size_t begin = texts[i].size();
    Tokens text = expected<double, 3>(texts[i], i, 18 - begin, drawn);
    const auto found =
        std::find(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(), last);
    if (found != text.end()) text.erase(found + 1, text.end());
    whole.push_back(std::move(text));
  }
  CHECK(std::count_if(whole.begin(), whole.end(),
                      [](const Tokens& text) { return text.size() < 18; }) > 1);
  for (const int ranks : {1, 3}) {
    run_ranks(ranks, [&](ThreadCommunicator& group) {
      Writer<double, 3, Reference, ThreadCommunicator> model(group);
      CHECK(completed(model, texts, last) == whole);
    });
  }
}

TEST_CASE("an error changes nothing") {
  const Tokens text = expected<double, 3>(prompt(5), 0, 4, drawn);
  const Tokens other = expected<double, 3>(prompt(2), 1, 3, drawn);
  run_ranks(2, [&](ThreadCommunicator& group) {
    Writer<double, 3, Reference, ThreadCommunicator> model(group);
    Generator generator(model, {.sequences = 2, .tokens = 9}, drawn, 2);
    const auto refused = [](const auto& call) { return message_of<argument_error>(call); };
    const auto added = [&](const Tokens& tokens) {
      return refused([&] { generator.add(tokens); });
    };
    CHECK(generator.step().empty());
    check_mentions(added({}), {"no tokens"});
    check_mentions(added(prompt(9)), {"prompt of 9 tokens", "at most 9"});
    check_mentions(refused([&] { generator.end(0); }), {"sequence 0 was never added"});

    CHECK(generator.add(prompt(5)) == 0);
    CHECK(generator.step().size() == 1);
    CHECK(generator.add(prompt(2)) == 1);
    check_mentions(added({1}), {"all 2 places", "end one first"});
    for (int step = 0; step < 3; ++step) CHECK(generator.step().size() == 2);
    CHECK(text_of(generator, 0) == text);
    check_mentions(refused([&] { generator.step(); }), {"sequence 0 has 9 tokens", "end it"});
    CHECK(text_of(generator, 0) == text);
    CHECK(text_of(generator, 1) == other);
    generator.end(0);
    check_mentions(refused([&] { generator.end(0); }), {"sequence 0 has ended"});
    check_mentions(refused([&] { generator.tokens(0); }), {"sequence 0 has ended"});
    CHECK(generator.step().size() == 1);

    // The model does not know one in the second piece.
    const Tokens unknown{1, 2, 3, vocabulary, 4};
    CHECK(generator.add(unknown) == 2);
    CHECK(generator.step().size() == 1);
    for (int i = 0; i < 2; ++i) check_mentions(refused([&] { generator.step(); }), {"token id 17"});
    CHECK(text_of(generator, 2) == unknown);
    generator.end(2);
    CHECK(generator.step().size() == 1);
    CHECK(text_of(generator, 1) == expected<double, 3>(prompt(2), 1, 6, drawn));
  });
  SingleRank alone;
  Writer<double, 3, Reference, SingleRank> model(alone);
  const auto made = [&](const CacheSize& size, const Sampling& sampling, std::size_t piece) {
    return message_of<argument_error>([&] { Generator(model, size, sampling, piece); });
  };
  check_mentions(made({.tokens = 3}, {}, 0), {"pieces of 0 tokens"});
  CHECK(made({.tokens = 0}, {}, 1) != "");
  CHECK(made({.tokens = 3}, {.top_p = 2}, 1) != "");
  Generator endless(model, {.tokens = std::size_t{1} << 62});
  check_mentions(message_of<memory_error>([&] { endless.add(prompt(2)); }),
                 {"no memory for the 4611686018427387904 tokens"});
}

TEST_CASE("logits that are no numbers stop a step, and it may be tried again") {
  const Tokens text = expected<double, 3>(prompt(5), 0, 3, drawn);
  const Tokens other = expected<double, 3>(prompt(6, 2), 1, 1, drawn);
  run_ranks(2, [&](ThreadCommunicator& group) {
    Writer<double, 3, Reference, ThreadCommunicator> model(group);
    Generator generator(model, {.sequences = 2, .tokens = 9}, drawn, 3);
    generator.add(prompt(5));
    generator.step();
    generator.add(prompt(6, 2));
    const std::span<double> weights = model.values();
    const std::vector<double> before(weights.begin(), weights.end());
    std::fill(weights.begin(), weights.end(), std::numeric_limits<double>::quiet_NaN());
    model.values_changed();
    check_mentions(message_of<numeric_error>([&] { generator.step(); }),
                   {"position 6 of sequence 0", "NaN"});
    std::copy(before.begin(), before.end(), weights.begin());
    model.values_changed();
    CHECK(generator.step().size() == 1);
    CHECK(generator.step().size() == 2);
    CHECK(text_of(generator, 0) == text);
    CHECK(text_of(generator, 1) == other);
  });
}

namespace {

/// Counts the evaluations of a model.
struct Evaluations {
  std::size_t count = 0;
  void begin(const Work& work) { count += work.kind == Work::Kind::phase ? 1 : 0; }
  void end() const noexcept {}
};

/// Writes texts whose prompts begin together and beside others, at most 4 of their tokens in a
/// batch, and checks what each step does.
template <class Net, class E>
void check_steps(const Net& net, ThreadCommunicator& group) {
  Model<Net, Context<double, Reference, ThreadCommunicator, Evaluations>, E, ForwardOnly> model(
      net, group, Seed{3}, any_text);
  Generator generator(model, {.sequences = 4, .tokens = 18}, drawn, 4);
  Tokens begun[5];
  const auto add = [&](const Tokens& tokens) { begun[generator.add(tokens)] = tokens; };
  const auto check_step = [&](std::size_t evaluations, const std::vector<std::size_t>& written_to) {
    const std::size_t before = model.observer().count;
    std::vector<std::size_t> numbers;
    for (const Generated& one : generator.step()) numbers.push_back(one.sequence);
    CHECK(numbers == written_to);
    CHECK(model.observer().count == before + evaluations);
  };
  const auto check_text = [&](std::size_t number) {
    const Tokens text = text_of(generator, number);
    CHECK(text ==
          expected<double, 3>(begun[number], number, text.size() - begun[number].size(), drawn));
    generator.end(number);
  };
  add(prompt(2));
  check_step(1, {0});
  add(prompt(6));
  add(prompt(3, 2));
  add(prompt(1, 4));
  check_step(1, {0, 3});        // and 4 tokens of 1
  check_step(1, {0, 1, 2, 3});  // with the last 2 tokens of 1, and the 3 of 2
  check_step(1, {0, 1, 2, 3});
  for (std::size_t number = 0; number < 4; ++number) check_text(number);
  add(prompt(11, 5));
  check_step(3, {4});  // no text waits
  check_step(1, {4});
  check_text(4);
}

}  // namespace

TEST_CASE("prompts are read in one evaluation, with the next tokens of other texts") {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    CAPTURE(ranks);
    run_ranks(ranks, [&](ThreadCommunicator& group) {
      const auto net = network<TensorParallel, 3>();
      using Split = Ends<Invariant, Sharded<Axis::feature>>;
      check_steps<std::remove_const_t<decltype(net)>, Ends<Invariant, Invariant>>(net, group);
      const auto of_last = last_logits(net);
      check_steps<std::remove_const_t<decltype(of_last)>, Split>(of_last, group);
    });
  }
}

TEST_CASE("a model of the last logits writes the same") {
  Tokens texts[3];
  for (std::size_t i = 0; i < 3; ++i)
    texts[i] = expected<double, 3>(prompts[i], i, written[i], drawn);
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    run_ranks(ranks, [&](ThreadCommunicator& group) {
      const auto net = last_logits(network<TensorParallel, 3>());
      Model<std::remove_const_t<decltype(net)>, Context<double, Reference, ThreadCommunicator>,
            Ends<Invariant, Sharded<Axis::feature>>, ForwardOnly>
          model(net, group, Seed{3}, any_text);
      const Texts of = write(model, drawn, 4);
      for (std::size_t i = 0; i < 3; ++i) CHECK(of.texts[i] == texts[i]);
    });
  }
}

TEST_CASE("a server answers prompts until there is none, and passes over those that are refused") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    const std::vector<Tokens> asked{prompt(5), prompt(80), {1, vocabulary}, prompt(3, 4), {}};
    std::vector<Tokens> answers;
    const auto body = [&](ThreadCommunicator& group) {
      Writer<double, 0, Reference, ThreadCommunicator> model(group);
      std::size_t at = 0;
      serve(
          model, 6, [&] { return asked[at++]; },
          [&](const Tokens& text) { answers.push_back(text); });
    };
    run_ranks(ranks, body);
    REQUIRE(answers.size() == 4);
    CHECK(answers[0] == expected<double, 0>(prompt(5), 0, 6, greedy));
    CHECK(answers[1].empty());
    CHECK(answers[2].empty());
    CHECK(answers[3] == expected<double, 0>(prompt(3, 4), 1, 6, greedy));
  }
}

TEST_CASE("logits of other axes are refused") {
  SingleRank alone;
  using Net = Sequential<Embedding<vocabulary, 4, split::none>, ClassToken<4>,
                         Linear<split::none, 4, vocabulary>>;
  Model<Net, Context<float, Reference, SingleRank>, Ends<Invariant, Invariant>, ForwardOnly> model(
      alone, Seed{3}, any_text);
  Generator generator(model, {.tokens = 9});
  generator.add(prompt(3));
  check_mentions(message_of<shape_error>([&] { generator.step(); }),
                 {"3 tokens of each of 1 samples", "[batch 1, sequence 4, feature 17]"});
  CHECK(text_of(generator, 0) == prompt(3));
}

TEST_CASE("steps allocate nothing after the second one") {
  for (const int ranks : {1, 3}) {
    CAPTURE(ranks);
    run_ranks(ranks, [&](ThreadCommunicator& group) {
      Writer<float, 3, Reference, ThreadCommunicator> model(group);
      Generator generator(model, {.sequences = 3, .tokens = 20}, drawn);
      for (const Tokens& tokens : prompts) generator.add(tokens);
      CHECK(testing::allocated_after_second([&] { generator.step(); }) == 0);
    });
  }
}

namespace {

/// What a rank writes with, unless a case says otherwise.
struct Writes {
  Sampling sampling = drawn;
  Seed of_model{3};
  Tokens prompt{1, 2, 3, 4};
  std::size_t prompts = 2;
  std::size_t end_at = 9;  ///< the step before which it ends its first sequence
};

/// The error of three ranks, of which rank 1 has other ones; the same on each. "" if there is none.
std::string told_of_writing(const Writes& of_1) {
  std::string told[3];
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    const Writes mine = ranks.rank() == 1 ? of_1 : Writes{};
    told[ranks.rank()] = message_of<collective_error>([&] {
      Writer<double, 0, Reference, ThreadCommunicator> model(ranks, mine.of_model);
      Generator generator(model, {4, 16}, mine.sampling);
      for (std::size_t i = 0; i < mine.prompts; ++i) generator.add(mine.prompt);
      for (std::size_t step = 0; step < 4; ++step) {
        if (step == mine.end_at) generator.end(0);
        generator.step();
      }
    });
  });
  CHECK(told[1] == told[0]);
  CHECK(told[2] == told[0]);
  return told[0];
}

}  // namespace

TEST_CASE("ranks that write with other options, models, tokens or sequences are told") {
  CHECK(told_of_writing({}) == "");
  const auto with = [](auto change) {
    Sampling sampling = drawn;
    change(sampling);
    return told_of_writing({.sampling = sampling});
  };
  const char* end = ". No rank's results would be right";
  check_mentions(with([](Sampling& s) { s.temperature = 2; }),
                 {"temperature is 1.5 on ranks 0, 2, and 2 on rank 1", end});
  check_mentions(with([](Sampling& s) { s.top_k = 3; }),
                 {"top_k is 12 on ranks 0, 2, and 3 on rank 1", end});
  check_mentions(with([](Sampling& s) { s.top_p = 0.5; }),
                 {"top_p is 0.95 on ranks 0, 2, and 0.5 on rank 1", end});
  check_mentions(with([](Sampling& s) { s.seed = Seed{9}; }),
                 {"seed is 8 on ranks 0, 2, and 9 on rank 1", end});
  check_mentions(with([](Sampling& s) { s.seed = Seed{(std::uint64_t{1} << 60) + 1}; }),
                 {"seed is 8 on ranks 0, 2, and 1152921504606846977 on rank 1", end});
  check_mentions(told_of_writing({.of_model = Seed{4}}),
                 {"rank 1 was given another seed than ranks 0, 2", end});
  check_mentions(told_of_writing({.prompt = {1, 2, 4, 4}}),
                 {"rank 1 was given other inputs than ranks 0, 2", end});
  check_mentions(told_of_writing({.prompt = {1, 2, 3, 5}}),
                 {"rank 1 was given other inputs than ranks 0, 2", end});
  CHECK(told_of_writing({.prompt = {1, 2, 3}}) != "");
  CHECK(told_of_writing({.prompts = 1}) != "");
  CHECK(told_of_writing({.end_at = 2}) != "");
}
