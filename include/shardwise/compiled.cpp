// The functions that are no templates, and loops for each dtype, for programs that are compiled
// with SHARDWISE_COMPILED.

#ifndef SHARDWISE_COMPILED
#define SHARDWISE_COMPILED
#endif
#ifdef SHARDWISE_BUILT_AS
#error "shardwise: compile compiled.cpp without a header of shardwise in front of it"
#endif
#define SHARDWISE_INLINE
#define SHARDWISE_EXTERN

#include "shardwise/comm/describe_mesh.hpp"
#include "shardwise/comm/launch_environment.hpp"
#include "shardwise/comm/mesh_sizes.hpp"
#include "shardwise/comm/rank_group.hpp"
#include "shardwise/core/file.hpp"
#include "shardwise/shardwise.hpp"

const char shardwise::compiled_must_be_built_as::SHARDWISE_BUILT_AS = 0;
