#pragma once
// The text about options that ranks were given differently.

#include <span>
#include <string>

#include "shardwise/comm/given_options.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/growing_list.hpp"

namespace shardwise::detail {

/// "clip_norm is 1 on ranks 0, 2, and 0.5 on rank 1": of the options of each of `ranks` those that
/// differ; empty if there are none. "other ones" for values that differ where they are not shown.
[[gnu::cold]] std::string text_of_unlike(const GrowingList<const OptionsText*>& all,
                                         std::span<const int> ranks);

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

#include <cstddef>
#include <string_view>

#include "shardwise/comm/detail/equal_groups.hpp"
#include "shardwise/comm/detail/ranks_text.hpp"
#include "shardwise/core/sentence.hpp"

namespace shardwise::detail {

/// The value of an option; "not given" if there is none of this name, "too long to show" if it may
/// have been cut off.
[[gnu::cold]] inline std::string_view value_of_option(const OptionsText& options,
                                                      std::string_view name) {
  std::string_view lines = options.lines.data();
  for (std::size_t end = lines.find('\n'); end != lines.npos; end = lines.find('\n')) {
    if (lines.starts_with(name) && lines[name.size()] == ' ')
      return lines.substr(name.size() + 1, end - name.size() - 1);
    lines.remove_prefix(end + 1);
  }
  return options.is_whole ? "not given" : "too long to show";
}

///@{
/// What of a value is shown, and what ranks compare: that is behind a tab, if there is one.
inline std::string_view shown_part(std::string_view value) {
  return value.substr(0, value.find('\t'));
}
inline std::string_view compared_part(std::string_view value) {
  return value.substr(value.find('\t') + 1);
}
///@}

/// "clip_norm is 1 on ranks 0, 2, and 0.5 on rank 1"; empty if it does not differ.
[[gnu::cold]] inline std::string text_of_unlike(std::string_view name,
                                                const GrowingList<const OptionsText*>& all,
                                                std::span<const int> ranks) {
  const auto value = [&](std::size_t r) { return value_of_option(*all[r], name); };
  const auto groups = groups_of_equal(all.size(), [&](std::size_t q, std::size_t r) {
    return compared_part(value(q)) == compared_part(value(r));
  });
  if (groups.size() < 2) return {};
  std::string text = sentence({name, " is "});
  for (std::size_t g = 0; g < groups.size(); ++g) {
    GrowingList<int> of_world;
    for (const std::size_t rank : groups[g]) of_world.add(ranks[rank]);
    const std::string_view shown = shown_part(value(groups[g][0]));
    bool is_new = true;
    for (std::size_t h = 0; h < g; ++h) is_new &= shown_part(value(groups[h][0])) != shown;
    append(text, {g == 0 ? "" : ", and ", is_new ? shown : std::string_view("other ones"), " on ",
                  ranks_text(of_world)});
  }
  return text;
}

SHARDWISE_INLINE std::string text_of_unlike(const GrowingList<const OptionsText*>& all,
                                            std::span<const int> ranks) {
  std::string text;
  for (const OptionsText* const one : all) {
    std::string_view lines = one->lines.data();
    for (std::size_t end = lines.find('\n'); end != lines.npos; end = lines.find('\n')) {
      const std::string_view name = lines.substr(0, lines.find(' '));
      lines.remove_prefix(end + 1);
      const std::string unlike = text_of_unlike(name, all, ranks);
      if (unlike.empty() || text.find(sentence({"; ", name, " is "})) != text.npos) continue;
      append(text, {"; ", unlike});
    }
  }
  return text.empty() ? text : text.substr(2);
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
