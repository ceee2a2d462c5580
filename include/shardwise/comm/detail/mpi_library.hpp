#pragma once
// The only header that includes <mpi.h>: MPI's return codes as exceptions, and its handles as
// objects.

// MPI's C++ bindings take half a second to read, and nothing here uses them.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::mpi {

/// Throws the error for `code`: a collective_error for a message that is longer than its receiver
/// expects, because then ranks made different calls; else a backend_error.
[[noreturn]] inline void fail(int code, const char* call) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  int error_class = MPI_ERR_UNKNOWN;
  MPI_Error_class(code, &error_class);
  MPI_Error_string(code, text, &length);
  const std::string message = std::string("MPI: ") + call + " failed with code " +
                              std::to_string(code) + ": " +
                              std::string(text, static_cast<std::size_t>(length));
  if (error_class == MPI_ERR_TRUNCATE)
    throw collective_error({message,
                            ". Ranks gave different counts; with checks at the level "
                            "`communicating`, both calls are named"});
  throw backend_error(message);
}

inline void check(int code, const char* call) {
  if (code != MPI_SUCCESS) fail(code, call);
}

/// Prints `why` and ends the job.
[[noreturn]] inline void end_job(const std::string& why) noexcept {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::fflush(nullptr);
  // MPICH's launcher drops what it has not read yet of the ranks' output when a job is aborted.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();  // MPI_Abort does not return
}

inline bool is_finalized() {
  int ended = 0;
  MPI_Finalized(&ended);
  return ended != 0;
}

/// Initializes MPI, unless it is initialized already, and then also finalizes it.
class Environment {
 public:
  Environment() {
    if (is_finalized())
      throw backend_error(
          "MPI: it has been ended in this process (MPI_Finalize) and cannot start again; end it "
          "after the last use of ranks");
    int running = 0;
    check(MPI_Initialized(&running), "MPI_Initialized");
    if (running != 0) return;
    int provided = 0;  // only this thread calls MPI, but a computing library may have threads
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    started_ = true;
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    if (!started_ || is_finalized()) return;
    // Open MPI 4.1's launcher can hang when one rank aborts the job while another ends MPI: so a
    // rank ends it only when all ranks want to.
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
  }

 private:
  bool started_ = false;
};

/// A communicator that this object owns, on which errors are return codes.
class OwnComm {
 public:
  /// Takes over `made`, which a call of MPI has just made.
  explicit OwnComm(MPI_Comm made) : comm_(made) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  OwnComm(OwnComm&& other) noexcept
      : comm_(std::exchange(other.comm_, MPI_COMM_NULL)), is_kept_(other.is_kept_) {}
  OwnComm& operator=(OwnComm&&) = delete;
  ~OwnComm() {
    if (comm_ != MPI_COMM_NULL && !is_kept_ && !is_finalized()) MPI_Comm_free(&comm_);
  }

  /// Does not free it. After it is freed, MPI may use its context for a new communicator, and
  /// messages on this one that were not received, or come later, could reach the new one.
  void keep() { is_kept_ = true; }

  static OwnComm duplicate(MPI_Comm comm) {
    MPI_Comm made = MPI_COMM_NULL;
    check(MPI_Comm_dup(comm, &made), "MPI_Comm_dup");
    return OwnComm(made);
  }

  MPI_Comm get() const { return comm_; }
  int rank() const {
    int rank = 0;
    check(MPI_Comm_rank(comm_, &rank), "MPI_Comm_rank");
    return rank;
  }
  int size() const {
    int size = 0;
    check(MPI_Comm_size(comm_, &size), "MPI_Comm_size");
    return size;
  }

 private:
  MPI_Comm comm_;
  bool is_kept_ = false;
};

/// A type of MPI for a dtype that MPI does not have: `bytes` bytes without a meaning for MPI.
class OwnType {
 public:
  OwnType(int bytes, const char* name) {
    check(MPI_Type_contiguous(bytes, MPI_BYTE, &type_), "MPI_Type_contiguous");
    check(MPI_Type_commit(&type_), "MPI_Type_commit");
    check(MPI_Type_set_name(type_, name), "MPI_Type_set_name");
  }
  OwnType(const OwnType&) = delete;
  OwnType& operator=(const OwnType&) = delete;
  ~OwnType() {
    if (!is_finalized()) MPI_Type_free(&type_);
  }

  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/// The types of MPI for our dtypes.
class Types {
 public:
  MPI_Datatype of(Dtype dtype) const {
    switch (dtype) {
      case Dtype::float32:
        return MPI_FLOAT;
      case Dtype::float64:
        return MPI_DOUBLE;
      case Dtype::bfloat16:
        return bfloat16_.get();
      case Dtype::float16:
        return float16_.get();
      case Dtype::int32:
        return MPI_INT32_T;
      case Dtype::int64:
        return MPI_INT64_T;
      case Dtype::uint8:
        return MPI_UINT8_T;
    }
    return MPI_BYTE;
  }

 private:
  OwnType bfloat16_{2, "bfloat16"};
  OwnType float16_{2, "float16"};
};

}  // namespace shardwise::detail::mpi
