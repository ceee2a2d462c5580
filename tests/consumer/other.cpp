#include "other.hpp"

#include "shardwise/shardwise.hpp"

std::string version_of_other() { return SHARDWISE_VERSION; }
