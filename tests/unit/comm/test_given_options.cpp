// Options that all ranks must be given alike: what counts for their hash, what of them is shown,
// and the errors about those that differ.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shardwise/comm/detail/agreed.hpp"
#include "shardwise/comm/given_options.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using detail::GivenOptions;
using detail::OptionsText;
using testing::message_of;

namespace {

template <class V>
GivenOptions one_option(const char* name, const V& value) {
  GivenOptions options;
  options.add(name, value);
  return options;
}

GivenOptions one_list(const std::vector<double>& numbers) {
  GivenOptions options;
  options.add("weights", numbers.data(), numbers.size());
  return options;
}

/// Of a line of options what is shown, without what is compared in its place.
std::string shown(const GivenOptions& options) {
  const std::string lines = options.lines();
  return lines.substr(0, lines.find_first_of("\t\n"));
}

/// Options number_0, number_1 and so on; the last one has the value `last`.
GivenOptions numbers(int count, int last) {
  static const char* const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k",
                                      "l", "m", "n", "o", "p", "q", "r", "s", "t", "u", "v",
                                      "w", "x", "y", "z", "A", "B", "C", "D", "E", "F", "G"};
  GivenOptions options;
  for (int i = 0; i < count; ++i) options.add(names[i], i + 1 < count ? 0 : last);
  return options;
}

}  // namespace

TEST_CASE("each option has a line with its name and value") {
  CHECK(GivenOptions().lines() == "");
  CHECK(one_option("clips", true).lines() == "clips true\n");
  CHECK(one_option("clips", false).lines() == "clips false\n");
  CHECK(one_option("kind", "AdamW").lines() == "kind AdamW\n");
  CHECK(one_option("rate", 0.5).lines() == "rate 0.5\n");
  CHECK(one_option("offset", -3).lines() == "offset -3\n");
  const std::uint64_t seed = (std::uint64_t{1} << 63) + 1;  // more bits than a double has
  CHECK(one_option("seed", seed).lines() == "seed 9223372036854775809\n");
  GivenOptions options;
  options.add("rate", 0.5);
  options.set_loss(0);
  options.add("weight", 1);
  options.set_loss(1);
  options.add("weight", 2);
  options.set_loss(GivenOptions::no_loss);
  options.add("steps", 3);
  CHECK(options.lines() == "rate 0.5\nlosses[0].weight 1\nlosses[1].weight 2\nsteps 3\n");
}

TEST_CASE("lists are shown while they are short and there is room for them") {
  CHECK(shown(one_list({1, 2.5, 4})) == "weights {1, 2.5, 4}");
  CHECK(shown(one_list(std::vector<double>(10))) == "weights {0, 0, 0, 0, 0, 0, 0, 0, 0, 0}");
  CHECK(shown(one_list(std::vector<double>(11))) == "weights 11 numbers");
  const std::vector<double> ten{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  GivenOptions options;
  for (const char* const name : {"first", "second", "third", "fourth"})
    options.add(name, ten.data(), name[1] == 'o' ? 1 : ten.size());
  const std::string lines = options.lines();
  CHECK(testing::contains(lines, "\nthird {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}\t"));
  CHECK(testing::contains(lines, "\nfourth 1 numbers\t"));
}

TEST_CASE("a hash tells names, words, numbers and lists apart") {
  CHECK(GivenOptions().hash() == 0);
  const std::vector<GivenOptions> all{
      one_option("a", true), one_option("b", true), one_option("a", false), one_option("a", "x"),
      one_option("a", 1),    one_option("a", -1),   one_option("a", 2U),    one_option("a", 3U),
      one_list({}),          one_list({1}),         one_list({1, 2}),       one_list({2, 1})};
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < all.size(); ++j)
      CHECK((all[i].hash() == all[j].hash()) == (i == j));
  CHECK(one_list({1, 2}).hash() == one_list({1, 2}).hash());
}

TEST_CASE("of more options than there is room for the hash knows all") {
  CHECK_FALSE(numbers(32, 1).are_more());
  CHECK(numbers(33, 1).are_more());
  CHECK(numbers(32, 7).lines().ends_with("E 0\nF 7\n"));
  CHECK(numbers(33, 7).lines().ends_with("E 0\nF 0\n"));
  CHECK(numbers(33, 1).hash() != numbers(33, 2).hash());
  CHECK(OptionsText(numbers(32, 1)).is_whole);
  CHECK_FALSE(OptionsText(numbers(33, 1)).is_whole);
  const std::string most(767, 'x'), more(768, 'x');
  CHECK(OptionsText(most, false).is_whole);
  CHECK(OptionsText(most, false).lines.data() == most);
  CHECK_FALSE(OptionsText(more, false).is_whole);
  CHECK(OptionsText(more, false).lines.data() == most);
}

TEST_CASE("what each rank has is told if it differs") {
  const auto told = [](const std::vector<int>& of_ranks) {
    return message_of<collective_error>([&] { detail::require_agreed(of_ranks, "the size"); });
  };
  CHECK(told({3, 3, 3}) == "");
  CHECK(told({3}) == "");
  CHECK(told({3, 4, 3}) ==
        "ranks disagree on the size: ranks 0, 2 have 3, rank 1 has 4; give all ranks the same one");
}

TEST_CASE("options that differ are told on all ranks") {
  const auto told = [](const GivenOptions& of_0, const GivenOptions& of_others) {
    std::vector<std::string> messages(3);
    run_ranks(3, [&](ThreadCommunicator& ranks) {
      messages[static_cast<std::size_t>(ranks.rank())] = message_of<collective_error>(
          [&] { detail::require_agreed(ranks, "the step", ranks.rank() == 0 ? of_0 : of_others); });
    });
    CHECK(messages[1] == messages[0]);
    CHECK(messages[2] == messages[0]);
    return messages[0];
  };
  CHECK(told(one_option("rate", 0.5), one_option("rate", 0.5)) == "");
  CHECK(told(one_option("rate", 0.5), one_option("rate", 0.25)) ==
        "ranks disagree on the step: rate is 0.5 on rank 0, and 0.25 on ranks 1, 2; give all ranks "
        "the same");
  CHECK(told(numbers(33, 1), numbers(33, 2)) ==
        "ranks disagree on the step: what differs is too long for this message; give all ranks the "
        "same");
}
