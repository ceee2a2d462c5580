#pragma once
// How tests steer the stand-in for a device (device_stand_in.cpp).

namespace device_stand_in {

/// Streams, events, blocks of memory and handles that are there, and blocks taken so far.
inline int alive = 0;
inline int blocks = 0;

/// Calls until one fails; negative: none does.
inline int calls_until_failure = -1;

/// What the next events say to be apart, in milliseconds; 1 behind the last one.
inline const float* next_times = nullptr;
inline int times_left = 0;

inline bool is_capturing = false;

}  // namespace device_stand_in
