// As compiled.cpp, for the headers of checkpoint/. What both include comes first, without its
// functions, which compiled.cpp has.

#ifndef SHARDWISE_COMPILED
#define SHARDWISE_COMPILED
#endif

#include "shardwise/core/file.hpp"
#include "shardwise/shardwise.hpp"

#define SHARDWISE_INLINE

#include "shardwise/checkpoint/checkpoint_folder.hpp"
#include "shardwise/checkpoint/config_file.hpp"
