#pragma once
// A config.json that a test writes.

#include <map>
#include <string>
#include <vector>

#include "shardwise/core/error.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"

namespace testing {

/// Values as JSON, by field; an empty one is not written.
using Fields = std::map<std::string, std::string>;

/// What `read` reads in a folder whose config.json has the fields `usual`, some of them `changed`.
template <class F>
auto read_config(const Fields& usual, Fields changed, F&& read) {
  changed.insert(usual.begin(), usual.end());
  std::string text = "{";
  for (const auto& [name, value] : changed) {
    if (!value.empty()) text += (text == "{" ? "\"" : ",\"") + name + "\":" + value;
  }
  const TemporaryFolder folder("shardwise_config");
  folder.write("config.json", text + "}");
  return read(folder.path());
}

/// Fields that make a file one that cannot be read, and what the error says.
struct RefusedFields {
  Fields changed;
  std::vector<std::string> said;
};

/// `read(changed)` refuses each of these.
template <class F>
void check_refused(F&& read, const std::vector<RefusedFields>& cases) {
  for (const RefusedFields& one : cases)
    check_mentions(message_of<shardwise::data_error>([&] { read(one.changed); }), one.said);
}

}  // namespace testing
