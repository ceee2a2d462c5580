#pragma once
// Where functions that are no templates get their code: in each program that includes their header,
// or once, in compiled.cpp and compiled_checkpoint.cpp, if it is compiled with SHARDWISE_COMPILED.
//
// A header declares such functions, and defines them at its end, in `#ifdef SHARDWISE_INLINE`. What
// runs for each element, or so often that its call would show in a small step, is inline in both.
// Loops over elements of each dtype that take compilers long are listed at the end of their header,
// in `#ifdef SHARDWISE_COMPILED`, after SHARDWISE_EXTERN.

#include "shardwise/version.hpp"

#ifndef SHARDWISE_COMPILED
/// Stands before such a definition.
#define SHARDWISE_INLINE inline
#else

#ifndef SHARDWISE_EXTERN
/// Stands before the instantiation of a template, of which compiled.cpp has the code.
#define SHARDWISE_EXTERN extern
#endif

// The linker refuses a program of another version, another standard or other containers: what it
// asks for has another name than what compiled.cpp defines.
#ifdef _GLIBCXX_DEBUG
#define SHARDWISE_CONTAINERS debug_containers
#else
#define SHARDWISE_CONTAINERS usual_containers
#endif
#define SHARDWISE_BUILT_AS_NAME(major, minor, patch, standard, containers) \
  version_##major##_##minor##_##patch##_standard_##standard##_##containers
#define SHARDWISE_EXPANDED(name, ...) name(__VA_ARGS__)
#define SHARDWISE_BUILT_AS                                                                      \
  SHARDWISE_EXPANDED(SHARDWISE_BUILT_AS_NAME, SHARDWISE_VERSION_MAJOR, SHARDWISE_VERSION_MINOR, \
                     SHARDWISE_VERSION_PATCH, __cplusplus, SHARDWISE_CONTAINERS)

namespace shardwise::compiled_must_be_built_as {

extern const char SHARDWISE_BUILT_AS;
#if __has_cpp_attribute(gnu::retain)
[[gnu::retain]]  // where a linker drops what nobody reads
#endif
[[gnu::used]] static const char* const asked = &SHARDWISE_BUILT_AS;

}  // namespace shardwise::compiled_must_be_built_as

#endif
