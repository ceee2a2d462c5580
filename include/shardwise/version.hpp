#pragma once
// The version; and a sentence for older standards, ahead of all errors that they would bring: every
// header includes this one before anything that they do not know.

#if __cplusplus < 202002L
#error "shardwise needs C++20: compile with -std=c++20 or newer."
#endif

///@{
/// The version by semantic versioning: three numbers, and a text of all three.
#define SHARDWISE_VERSION_MAJOR 0
#define SHARDWISE_VERSION_MINOR 2
#define SHARDWISE_VERSION_PATCH 0
#define SHARDWISE_VERSION "0.2.0"
///@}
