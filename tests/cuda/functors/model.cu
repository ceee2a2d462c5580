// The loops of communicators, redistributions and models as kernels.

#include "reduce.hpp"
#include "shardwise/backend/cuda/launch.hpp"
#include "shardwise/comm/detail/device_sums.hpp"
#include "shardwise/model/finite.hpp"
#include "shardwise/model/parameter_memory.hpp"
#include "shardwise/model/precision.hpp"
#include "shardwise/model/whole_parameters.hpp"
#include "shardwise/redistribute/run.hpp"
using namespace shardwise;
using namespace shardwise::detail;

/// Of every dtype that is moved.
template <class T>
void moved(cuda::Session& s, T* a, T* b) {
  cuda::launch_each(s, 5, Fill<T>{a, T{}});
  cuda::launch_each(s, 5, Copy<T>{a, b});
  cuda::launch_each(s, 5, BoxElementCopy<T>{{{{Axis::batch, 2}}, {}, {}}, a, b});
  cuda::launch_each(s, 5, PeerReduction<T>{});
}

template <class T>
void use(cuda::Session& s, T* a, T* b) {
  moved(s, a, b);
  cuda::launch_each(s, 5, BoxElementAdd<T>{{{{Axis::batch, 2}}, {}, {}}, a, {}});
  cuda::launch_each(s, 5, RoundEach<T>{});
  cuda::launch_each(s, 5, RoundTo<T, float>{});
  cuda::launch_each(s, 5, RoundTo<float, T>{});
  cuda::launch_each(s, 5, RoundTwice<T, float, T>{});
  cuda::launch_each(s, 5, RoundTwice<float, T, float>{});
  cuda::launch_each(s, 5, Collect<T, T>{});
  cuda::launch_each(s, 5, Collect<T, float>{});
  cuda::launch_each(s, 5, Collect<float, T>{});
  std::uint8_t* bad = nullptr;
  compile_sum(s, std::uint8_t{0}, IsNotFinite<T>{a}, Largest{}, bad);
}
template void use(cuda::Session&, float*, float*);
template void use(cuda::Session&, double*, double*);
template void use(cuda::Session&, bf16*, bf16*);
template void use(cuda::Session&, fp16*, fp16*);
template void moved(cuda::Session&, std::uint8_t*, std::uint8_t*);
template void moved(cuda::Session&, std::int32_t*, std::int32_t*);
template void moved(cuda::Session&, std::int64_t*, std::int64_t*);
