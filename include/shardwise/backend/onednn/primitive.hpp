#pragma once
// A primitive with the memory objects of its arguments: created once, run many times.

#include <oneapi/dnnl/dnnl.h>

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

#include "shardwise/backend/onednn/check.hpp"
#include "shardwise/backend/onednn/handle.hpp"
#include "shardwise/backend/onednn/library.hpp"
#include "shardwise/backend/onednn/session.hpp"

namespace shardwise::detail::onednn {

/// An argument of a primitive: DNNL_ARG_... and the layout of its memory.
struct Argument {
  int kind = 0;
  ConstDesc desc{};
};

/// A run does not allocate in shardwise: the constructor makes the memory objects, and a call only
/// sets the caller's pointers in them.
class Primitive {
 public:
  Primitive(Session& session, const Descriptor& desc, std::initializer_list<Argument> arguments,
            const ErrorContext& context)
      : Primitive(session, desc, std::span(arguments.begin(), arguments.size()), context) {}
  Primitive(Session& session, const Descriptor& desc, std::span<const Argument> arguments,
            const ErrorContext& context)
      : context_(context) {
    dnnl_primitive_t handle = nullptr;
    check(dnnl_primitive_create(&handle, desc.get()), "dnnl_primitive_create", context);
    handle_.reset(handle);
    const ConstDesc scratch = dnnl_primitive_desc_query_md(desc.get(), dnnl_query_scratchpad_md, 0);
    scratch_bytes_ = dnnl_memory_desc_get_size(scratch);
    add(session, {DNNL_ARG_SCRATCHPAD, scratch});
    for (const Argument& argument : arguments) add(session, argument);
  }

  /// Runs the primitive on these addresses, in the order of the constructor's arguments, and waits.
  /// oneDNN takes inputs and outputs as void*; the kinds of the arguments say which of them it
  /// writes.
  void run(Session& session, std::initializer_list<const void*> data) {
    run(session, std::span(data.begin(), data.size()));
  }
  void run(Session& session, std::span<const void* const> data) {
    set(0, session.scratch().reserve(scratch_bytes_));
    std::size_t i = 1;
    for (const void* address : data) set(i++, const_cast<void*>(address));
    check(dnnl_primitive_execute(handle_.get(), session.stream(), static_cast<int>(count_),
                                 args_.data()),
          "dnnl_primitive_execute", context_);
    check(dnnl_stream_wait(session.stream()), "dnnl_stream_wait", context_);
  }

 private:
  static constexpr std::size_t max_arguments = 5;  // scratch, two factors, product, bias

  void add(Session& session, const Argument& argument) {
    dnnl_memory_t memory = nullptr;
    check(dnnl_memory_create(&memory, argument.desc, session.engine(), DNNL_MEMORY_NONE),
          "dnnl_memory_create", context_);
    memories_[count_].reset(memory);
    args_[count_++] = {argument.kind, memory};
  }

  void set(std::size_t i, void* data) {
    if (bound_[i] == data) return;
    bound_[i] = data;
    check(dnnl_memory_set_data_handle(args_[i].memory, data), "dnnl_memory_set_data_handle",
          context_);
  }

  ErrorContext context_;
  PrimitiveHandle handle_;
  std::size_t scratch_bytes_ = 0;
  std::size_t count_ = 0;
  std::array<Memory, max_arguments> memories_;
  std::array<dnnl_exec_arg_t, max_arguments> args_{};
  std::array<void*, max_arguments> bound_{};  // the address in each memory object
};

}  // namespace shardwise::detail::onednn
