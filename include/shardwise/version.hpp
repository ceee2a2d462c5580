#pragma once
// The version; and a sentence for compilers' flags with which the library does not work, ahead of
// all errors that they would bring: every header includes this one before anything that they do not
// know.

#if __cplusplus < 202002L
#error "shardwise needs C++20: compile with -std=c++20 or newer."
#endif
#ifndef __cpp_exceptions
#error "shardwise reports errors by exceptions: compile without -fno-exceptions."
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "shardwise looks for NaN: compile without -ffast-math, -Ofast and -ffinite-math-only."
#endif
#ifdef __ASSOCIATIVE_MATH__
#error "shardwise rounds in a fixed order: compile without -funsafe-math-optimizations."
#endif

///@{
/// The version by semantic versioning: three numbers, and a text of all three.
#define SHARDWISE_VERSION_MAJOR 0
#define SHARDWISE_VERSION_MINOR 2
#define SHARDWISE_VERSION_PATCH 0
#define SHARDWISE_VERSION "0.2.0"
///@}
