// The version is one: project() reads the text, and the numbers are the same.
#include "shardwise/version.hpp"

#include <string_view>

#define TEXT_OF(number) #number
#define DOTTED(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

static_assert(std::string_view(SHARDWISE_VERSION) ==
              DOTTED(SHARDWISE_VERSION_MAJOR, SHARDWISE_VERSION_MINOR, SHARDWISE_VERSION_PATCH));
