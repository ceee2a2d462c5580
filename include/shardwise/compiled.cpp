// The functions that are no templates, for programs that are compiled with SHARDWISE_COMPILED.

#ifndef SHARDWISE_COMPILED
#define SHARDWISE_COMPILED
#endif
#define SHARDWISE_INLINE

#include "shardwise/shardwise.hpp"

const char shardwise::compiled_must_be_built_as::SHARDWISE_BUILT_AS = 0;
