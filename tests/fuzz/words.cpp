// Any text where a user or a launcher gives words: as the sizes of a mesh, as a time-out, and as
// the variables of a launcher. Either an argument_error, or what was read says the same when it is
// written.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "fuzz/fuzz.hpp"
#include "shardwise/comm/launch_environment.hpp"
#include "shardwise/comm/mesh_sizes.hpp"
#include "shardwise/comm/timeout.hpp"

using namespace shardwise;

namespace {

void try_mesh(std::string_view text) {
  const auto sizes = fuzz::accepted<argument_error>([&] { return parse_mesh(text); });
  if (!sizes) return;
  fuzz::require(parse_mesh(to_string(*sizes)) == *sizes, "a mesh is read as it was written");
  for (const int ranks : {1, 6, 64}) {
    fuzz::may_reject<argument_error>([&] {
      fuzz::require(sizes->on_ranks(ranks).size() == ranks, "sizes multiply to the ranks");
    });
  }
}

void try_timeout(const std::string& text) {
  ::setenv("SHARDWISE_TIMEOUT", text.c_str(), 1);
  fuzz::may_reject<argument_error>(
      [] { fuzz::require(detail::default_timeout().count() >= 0, "a time-out is not negative"); });
}

/// "NAME=value" in each line.
void try_launcher(std::string_view lines) {
  const detail::Lookup lookup = [lines](const std::string& name) -> std::optional<std::string> {
    for (std::string_view left = lines; !left.empty();) {
      const std::string_view line = left.substr(0, left.find('\n'));
      left.remove_prefix(line.size() < left.size() ? line.size() + 1 : line.size());
      if (line.starts_with(name + "=")) return std::string(line.substr(name.size() + 1));
    }
    return std::nullopt;
  };
  fuzz::may_reject<argument_error>([&] {
    const LaunchEnvironment found = read_launch_environment(lookup);
    fuzz::require(found.rank >= 0 && found.rank < found.size, "a rank is below the size");
    const int local = found.local_rank.value_or(0);
    fuzz::require(local >= 0 && local < found.size, "a local rank is below the size");
    const int port = found.master_port.value_or(1);
    fuzz::require(port > 0 && port < 65536, "a port has 16 bits");
  });
  fuzz::may_reject<argument_error>([&] { choose_mesh("", lookup); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  try_mesh(text);
  try_timeout(std::string(text));
  try_launcher(text);
  return 0;
}
