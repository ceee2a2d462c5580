#pragma once
// The state that all primitives of one backend object share.

#include <oneapi/dnnl/dnnl.h>

#include "shardwise/backend/onednn/check.hpp"
#include "shardwise/backend/onednn/handle.hpp"
#include "shardwise/backend/onednn/scratch.hpp"

namespace shardwise::detail::onednn {

/// Copies of the tensors of a convolution, or of their gradients, in the layouts of the library.
struct ConvolutionCopies {
  Scratch x{};
  Scratch w{};
  Scratch bias{};
  Scratch y{};
};

/// Engine, stream and scratch memory. For one thread at a time: primitives run one after another,
/// so they can share scratch memory.
class Session {
 public:
  Session() {
    dnnl_engine_t engine = nullptr;
    check(dnnl_engine_create(&engine, dnnl_cpu, 0), "dnnl_engine_create", {});
    engine_.reset(engine);
    dnnl_stream_t stream = nullptr;
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "dnnl_stream_create", {});
    stream_.reset(stream);
  }

  dnnl_engine_t engine() const { return engine_.get(); }
  dnnl_stream_t stream() const { return stream_.get(); }
  Scratch& scratch() { return scratch_; }
  /// A result that a call writes before it is where the caller wants it.
  Scratch& result() { return result_; }
  /// As large as the largest call of any convolution; for one call at a time.
  ConvolutionCopies& convolution_copies() { return convolution_copies_; }

 private:
  Engine engine_;
  Stream stream_;
  Scratch scratch_;
  Scratch result_;
  ConvolutionCopies convolution_copies_;
};

}  // namespace shardwise::detail::onednn
