// Stands in for NCCL and CUDA's runtime, so that what is around them runs without a GPU: devices
// are numbers, their memory is that of the host, a stream is a thread, ranks are threads of one
// process. Calls do nothing but what nccl.h and CUDA's documentation promise: collectives are put
// on a stream and wait there for the other ranks, sends for their receivers, and abort ends the
// wait. Two ranks connect at the first message between them, and until then the call of each is in
// progress. Calls that would not end on GPUs, or end with wrong numbers, end the process. A stream
// that is captured does nothing; a graph that is launched does on one stream what
// was captured on all.

#include "nccl/stand_in.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "shardwise/core/dtype.hpp"

using stand_in::alive;

// --- streams and events -------------------------------------------------------------------------

using Task = std::function<void()>;

namespace {

/// What some streams were given since one of them began to be captured, in that order. A task is
/// made of each at each launch.
struct Capture {
  cudaStream_t origin;
  std::vector<std::function<Task()>> calls;
  std::set<cudaStream_t> streams;  ///< that take part
  bool is_over = false;
  std::set<cudaStream_t> unjoined;  ///< with calls that no event has ordered before the origin's
};

}  // namespace

struct CUstream_st {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;
  std::shared_ptr<Capture> capture;  ///< which the stream takes part in
  bool is_busy = false;
  bool ends = false;
  std::thread thread{[this] { run(); }};

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return ends || !tasks.empty(); });
      if (tasks.empty()) return;
      const Task task = std::move(tasks.front());
      tasks.pop_front();
      is_busy = true;
      lock.unlock();
      task();
      lock.lock();
      is_busy = false;
      changed.notify_all();
    }
  }
  /// The task is made now, or at each launch of what is being captured.
  void push_made(std::function<Task()> make) {
    if (capture == nullptr) return push(make());
    capture->calls.push_back(std::move(make));
    if (capture->origin != this) capture->unjoined.insert(this);
  }
  void push(Task task) {
    if (capture != nullptr) return push_made([task] { return task; });
    const std::lock_guard lock(mutex);
    tasks.push_back(std::move(task));
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return tasks.empty() && !is_busy; });
  }
};

/// Of the last record alone: what waits keeps its own share.
struct CUevent_st {
  std::shared_ptr<std::atomic<bool>> is_done;  ///< none before the first
  std::shared_ptr<Capture> capture;            ///< in which it was recorded
  cudaStream_t on = nullptr;
};

struct CUgraph_st {
  std::vector<std::function<Task()>> calls;
};
struct CUgraphExec_st {
  std::vector<std::function<Task()>> calls;
};

// --- communicators ------------------------------------------------------------------------------

namespace {

struct Op {
  enum Kind { all_reduce, all_gather, reduce_scatter, broadcast, reduce, send, recv } kind;
  const void* in;
  void* out;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t reduction;
  int peer;  ///< root or partner
};

/// What the ranks of one communicator share.
struct Board {
  explicit Board(int ranks) : size(ranks) {}

  struct Slot {
    std::vector<Op> ops;
    std::vector<std::pair<int, int>> splits;
    int arrived = 0;
    int left = 0;
  };
  struct Message {
    const void* data;
    std::size_t bytes;
    bool is_taken = false;
  };

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0;
  std::map<std::size_t, Slot> slots;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> messages;
  std::set<std::pair<int, int>> senders, receivers;  ///< pairs of which that side has connected
};

[[noreturn]] void refuse(const char* why) {
  std::fprintf(stderr, "stand-in: %s\n", why);
  std::abort();
}

struct Rank {
  std::shared_ptr<Board> board;
  int number = 0;
  int device = 0;
  std::atomic<bool> is_aborted{false};
  std::size_t issued = 0;

  /// False if the communicator was aborted meanwhile.
  template <class F>
  bool wait(std::unique_lock<std::mutex>& lock, F&& f) {
    while (!f()) {
      if (is_aborted) return false;
      board->changed.wait_for(lock, std::chrono::milliseconds(1));
    }
    return true;
  }
};

std::mutex registry_mutex;
std::map<std::string, std::shared_ptr<Board>> boards_by_id;  ///< until all ranks have joined
std::map<std::tuple<std::shared_ptr<Board>, std::size_t, int>, std::shared_ptr<Board>>
    boards_by_split;
std::atomic<int> ids{0};
std::array<std::atomic<int>, 64> at_work{};  ///< calls of NCCL that have begun, on each device
thread_local int current_device = 0;

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

template <class T>
void reduce_as(const std::vector<const void*>& in, void* out, std::size_t n, ncclRedOp_t how) {
  std::vector<T> result(n);
  for (std::size_t i = 0; i < n; ++i) {
    using Sum = shardwise::accumulate_t<T>;
    auto sum = static_cast<Sum>(static_cast<const T*>(in[0])[i]);
    for (std::size_t r = 1; r < in.size(); ++r) {
      const auto next = static_cast<Sum>(static_cast<const T*>(in[r])[i]);
      if (how == ncclSum) sum = static_cast<Sum>(sum + next);
      if (how == ncclMax) sum = std::max(sum, next);
      if (how == ncclMin) sum = std::min(sum, next);
    }
    result[i] = static_cast<T>(sum);
  }
  std::memcpy(out, result.data(), n * sizeof(T));
}

void reduce(const std::vector<const void*>& in, void* out, std::size_t n, ncclDataType_t type,
            ncclRedOp_t how) {
  switch (type) {
    case ncclUint8:
      return reduce_as<std::uint8_t>(in, out, n, how);
    case ncclInt32:
      return reduce_as<std::int32_t>(in, out, n, how);
    case ncclInt64:
      return reduce_as<std::int64_t>(in, out, n, how);
    case ncclFloat16:
      return reduce_as<shardwise::fp16>(in, out, n, how);
    case ncclBfloat16:
      return reduce_as<shardwise::bf16>(in, out, n, how);
    case ncclFloat32:
      return reduce_as<float>(in, out, n, how);
    default:
      return reduce_as<double>(in, out, n, how);
  }
}

const std::byte* at(const void* data, std::size_t elements, ncclDataType_t type) {
  return static_cast<const std::byte*>(data) + elements * size_of(type);
}

/// What one rank gets of a collective that all ranks have joined; written to `result`.
std::vector<std::byte> outcome(const Rank& rank, const std::vector<Op>& ops) {
  const Op& mine = ops[static_cast<std::size_t>(rank.number)];
  const std::size_t bytes = mine.count * size_of(mine.type);
  const auto me = static_cast<std::size_t>(rank.number);
  std::vector<std::byte> result;
  std::vector<const void*> in;
  for (const Op& op : ops)
    in.push_back(mine.kind == Op::reduce_scatter ? at(op.in, me * mine.count, mine.type) : op.in);
  switch (mine.kind) {
    case Op::all_reduce:
    case Op::reduce_scatter:
      result.resize(bytes);
      reduce(in, result.data(), mine.count, mine.type, mine.reduction);
      break;
    case Op::reduce:
      if (rank.number != mine.peer) break;
      result.resize(bytes);
      reduce(in, result.data(), mine.count, mine.type, mine.reduction);
      break;
    case Op::broadcast: {
      const auto* const data =
          static_cast<const std::byte*>(ops[static_cast<std::size_t>(mine.peer)].in);
      result.assign(data, data + bytes);
      break;
    }
    case Op::all_gather:
      for (const Op& op : ops) {
        const auto* const data = static_cast<const std::byte*>(op.in);
        result.insert(result.end(), data, data + bytes);
      }
      break;
    default:
      break;
  }
  return result;
}

bool same_call(const Op& a, const Op& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && a.reduction == b.reduction &&
         a.peer == b.peer;
}

/// A collective on a stream: all ranks arrive, all read, all have read, each writes.
void collective(Rank& rank, std::size_t number, const Op& op) {
  std::unique_lock lock(rank.board->mutex);
  Board::Slot& slot = rank.board->slots[number];
  slot.ops.resize(static_cast<std::size_t>(rank.board->size));
  slot.ops[static_cast<std::size_t>(rank.number)] = op;
  ++slot.arrived;
  rank.board->changed.notify_all();
  if (!rank.wait(lock, [&] { return slot.arrived == rank.board->size; })) return;
  for (const Op& other : slot.ops)
    if (!same_call(other, op)) refuse("ranks made different calls");
  const std::vector<std::byte> result = outcome(rank, slot.ops);
  ++slot.left;
  rank.board->changed.notify_all();
  if (!rank.wait(lock, [&] { return slot.left >= rank.board->size; })) return;
  if (!result.empty()) std::memcpy(op.out, result.data(), result.size());
}

/// Messages of one group: all are posted, then what comes is taken, then ours have to be taken.
void messages(Rank& rank, const std::vector<Op>& ops) {
  std::unique_lock lock(rank.board->mutex);
  std::vector<std::shared_ptr<Board::Message>> posted;
  for (const Op& op : ops) {
    if (op.kind != Op::send) continue;
    posted.push_back(std::make_shared<Board::Message>(
        Board::Message{op.in, op.count * size_of(op.type), false}));
    rank.board->messages[{rank.number, op.peer}].push_back(posted.back());
  }
  rank.board->changed.notify_all();
  for (const Op& op : ops) {
    if (op.kind != Op::recv) continue;
    auto& incoming = rank.board->messages[{op.peer, rank.number}];
    if (!rank.wait(lock, [&] { return !incoming.empty(); })) return;
    if (incoming.front()->bytes != op.count * size_of(op.type))
      refuse("a message is received with another size than it has");
    std::memcpy(op.out, incoming.front()->data, op.count * size_of(op.type));
    incoming.front()->is_taken = true;
    incoming.pop_front();
    rank.board->changed.notify_all();
  }
  for (const auto& message : posted)
    if (!rank.wait(lock, [&] { return message->is_taken; })) return;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Rank> rank;
  ncclComm_t* splits_into = nullptr;
  std::size_t split_number = 0;
  int color = 0;
  bool is_connected = false;
  std::vector<std::pair<int, int>> connecting{};  ///< pairs that wait for their other side
  int turns = 0;
  ncclResult_t broken = ncclSuccess;
};

namespace {

struct Issued {
  ncclComm_t comm;
  cudaStream_t stream;
  Op op;
};
thread_local int group_depth = 0;
thread_local std::vector<Issued> grouped;
thread_local bool group_split = false;

/// The first message of a pair connects it.
void connect(ncclComm& comm, const std::vector<Op>& messages) {
  Board& board = *comm.rank->board;
  const std::lock_guard lock(board.mutex);
  for (const Op& op : messages) {
    const bool is_sender = op.kind == Op::send;
    const int here = comm.rank->number;
    const std::pair pair = is_sender ? std::pair(here, op.peer) : std::pair(op.peer, here);
    if ((is_sender ? board.senders : board.receivers).insert(pair).second)
      comm.connecting.push_back(pair);
  }
}
bool is_connecting(ncclComm& comm) {
  Board& board = *comm.rank->board;
  const std::lock_guard lock(board.mutex);
  std::erase_if(comm.connecting, [&](const auto& pair) {
    return board.senders.contains(pair) && board.receivers.contains(pair);
  });
  return !comm.connecting.empty();
}

ncclResult_t flush() {
  std::vector<Issued> all = std::move(grouped);
  grouped.clear();
  const bool split = std::exchange(group_split, false);
  const ncclResult_t wrong = stand_in::next_result.exchange(ncclSuccess);
  if (wrong != ncclSuccess) return wrong;
  if (all.empty()) return split ? ncclInProgress : ncclSuccess;
  const std::shared_ptr<Rank> rank = all[0].comm->rank;
  std::vector<Op> sends;
  std::vector<Op> collectives;
  for (const Issued& one : all) {
    // Two communicators run one after another, in an order that is not the caller's.
    if (one.comm != all[0].comm) refuse("one group call has several communicators");
    const bool is_message = one.op.kind == Op::send || one.op.kind == Op::recv;
    (is_message ? sends : collectives).push_back(one.op);
  }
  connect(*all[0].comm, sends);
  all[0].stream->push_made([rank, sends, collectives]() -> Task {
    const std::size_t first = rank->issued;
    rank->issued += collectives.size();
    return [rank, sends, collectives, first] {
      const auto device = static_cast<std::size_t>(rank->device);
      if (++at_work[device] > 1) stand_in::some_at_once = true;
      for (std::size_t i = 0; i < collectives.size(); ++i)
        collective(*rank, first + i, collectives[i]);
      messages(*rank, sends);
      --at_work[device];
    };
  });
  all[0].comm->turns = stand_in::progress_turns;
  return all[0].comm->turns > 0 || is_connecting(*all[0].comm) ? ncclInProgress : ncclSuccess;
}

ncclResult_t issue(ncclComm_t comm, cudaStream_t stream, const Op& op) {
  if (comm == nullptr || stream == nullptr ||
      (op.count > 0 && op.in == nullptr && op.kind != Op::recv))
    return ncclInvalidArgument;
  grouped.push_back({comm, stream, op});
  return group_depth > 0 ? ncclSuccess : flush();
}

ncclComm_t new_comm(std::shared_ptr<Board> board, int number) {
  auto* const comm = new ncclComm;
  comm->rank = std::make_shared<Rank>();
  comm->rank->board = std::move(board);
  comm->rank->number = number;
  comm->rank->device = current_device;
  ++alive;
  const std::lock_guard lock(comm->rank->board->mutex);
  ++comm->rank->board->joined;
  return comm;
}

bool is_full(Board& board) {
  const std::lock_guard lock(board.mutex);
  return board.joined == board.size;
}

/// The child of a split that all ranks have joined, or nothing yet.
ncclComm_t child_of(ncclComm_t comm) {
  Board& board = *comm->rank->board;
  std::vector<std::pair<int, int>> members;
  int position = 0;
  {
    const std::lock_guard lock(board.mutex);
    const Board::Slot& slot = board.slots[comm->split_number];
    if (slot.arrived < board.size) return nullptr;
    const int key = slot.splits[static_cast<std::size_t>(comm->rank->number)].second;
    for (int r = 0; r < board.size; ++r) {
      const auto [color, other] = slot.splits[static_cast<std::size_t>(r)];
      if (color != comm->color) continue;
      members.emplace_back(other, r);
      position += std::pair(other, r) < std::pair(key, comm->rank->number) ? 1 : 0;
    }
  }
  const std::lock_guard lock(registry_mutex);
  auto& made = boards_by_split[{comm->rank->board, comm->split_number, comm->color}];
  if (!made) made = std::make_shared<Board>(static_cast<int>(members.size()));
  return new_comm(made, position);
}

}  // namespace

// --- NCCL ---------------------------------------------------------------------------------------

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const char* const address = std::getenv("NCCL_COMM_ID");
  const std::string text = address != nullptr ? address : "id " + std::to_string(++ids);
  std::memset(id, 0, sizeof *id);
  text.copy(id->internal, sizeof id->internal - 1);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) { return "words of the stand-in"; }
const char* ncclGetLastError(ncclComm_t) { return "its last error"; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidUsage;
  const std::string text = id.internal;
  const bool is_address = text.rfind("id ", 0) != 0;
  if (is_address && rank == 0 && std::getenv("NCCL_COMM_ID") == nullptr)
    return ncclInternalError;  // NCCL would wait, because nobody listens
  const std::lock_guard lock(registry_mutex);
  const auto board = boards_by_id.try_emplace(text, std::make_shared<Board>(size)).first->second;
  *comm = new_comm(board, rank);
  if (is_full(*board)) boards_by_id.erase(text);
  return ncclInProgress;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclResult_t result = ncclCommInitRankConfig(comm, size, id, rank, &config);
  while (result == ncclInProgress) ncclCommGetAsyncError(*comm, &result);
  return result;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  if (comm == nullptr) return ncclInvalidArgument;
  *result = ncclSuccess;
  const ncclResult_t next = stand_in::next_async_error.exchange(ncclSuccess);
  if (next != ncclSuccess) comm->broken = next;
  if (comm->broken != ncclSuccess) {
    *result = comm->broken;
  } else if (!comm->is_connected) {
    comm->is_connected = is_full(*comm->rank->board);
    if (!comm->is_connected) *result = ncclInProgress;
  } else if (comm->splits_into != nullptr) {
    const ncclComm_t child = child_of(comm);
    if (child != nullptr)
      *std::exchange(comm->splits_into, nullptr) = child;
    else
      *result = ncclInProgress;
  } else if (comm->turns > 0) {
    --comm->turns;
    *result = ncclInProgress;
  } else if (is_connecting(*comm)) {
    *result = ncclInProgress;
  }
  return ncclSuccess;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t*) {
  if (color < 0) return ncclInvalidArgument;
  comm->splits_into = made;
  comm->split_number = comm->rank->issued++;
  comm->color = color;
  const std::lock_guard lock(comm->rank->board->mutex);
  Board::Slot& slot = comm->rank->board->slots[comm->split_number];
  slot.splits.resize(static_cast<std::size_t>(comm->rank->board->size));
  slot.splits[static_cast<std::size_t>(comm->rank->number)] = {color, key};
  ++slot.arrived;
  group_split = group_depth > 0;
  return ncclInProgress;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->turns = stand_in::progress_turns;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  ++stand_in::destroyed;
  --alive;
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->rank->is_aborted = true;
  ++stand_in::aborted;
  --alive;
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* size) {
  *size = comm->rank->board->size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank->number;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->rank->device;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() { return --group_depth == 0 ? flush() : ncclSuccess; }

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t how, ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, stream, {Op::all_reduce, in, out, count, type, how, -1});
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, stream, {Op::all_gather, in, out, count, type, ncclSum, -1});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t how, ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, stream, {Op::reduce_scatter, in, out, count, type, how, -1});
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, stream, {Op::broadcast, in, out, count, type, ncclSum, root});
}
ncclResult_t ncclReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t how, int root, ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, stream, {Op::reduce, in, out, count, type, how, root});
}
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, stream, {Op::send, in, nullptr, count, type, ncclSum, peer});
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return issue(comm, stream, {Op::recv, nullptr, out, count, type, ncclSum, peer});
}

// --- CUDA ---------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  *count = stand_in::devices;
  return stand_in::has_driver ? cudaSuccess : cudaErrorInsufficientDriver;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorOfStandIn"; }
const char* cudaGetErrorString(cudaError_t) { return "words of the stand-in"; }
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* all) {
  *free = *all = std::size_t{1} << 30;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  *data = std::malloc(bytes);
  std::memset(*data, 0x7f, bytes);
  ++alive;
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  // CUDA waits for the kernels that use it; here it is kept until the process ends.
  static auto& kept = *new std::vector<void*>;
  if (data == nullptr) return cudaSuccess;
  const std::lock_guard lock(registry_mutex);
  kept.push_back(data);
  --alive;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const auto* const first = static_cast<const std::byte*>(from);
  std::vector<std::byte> staged;
  if (kind == cudaMemcpyHostToDevice) staged.assign(first, first + bytes);
  stream->push([=] { std::memcpy(to, staged.empty() ? from : staged.data(), bytes); });
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new CUstream_st;
  ++alive;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  stream->wait();
  {
    const std::lock_guard lock(stream->mutex);
    stream->ends = true;
    stream->changed.notify_all();
  }
  stream->thread.join();
  delete stream;
  --alive;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  stream->wait();
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void* data) {
  stream->push([=] { call(data); });
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status =
      stream->capture != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capture != nullptr) return cudaErrorIllegalState;
  stream->capture = std::make_shared<Capture>(Capture{stream, {}, {stream}, false, {}});
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  for (const cudaStream_t taking_part : capture->streams) taking_part->capture = nullptr;
  capture->is_over = true;
  if (!capture->unjoined.empty()) return cudaErrorStreamCaptureUnjoined;
  *graph = new CUgraph_st{capture->calls};
  ++alive;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = new CUgraphExec_st{graph->calls};
  ++alive;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  for (const auto& make : graph->calls) stream->push(make());
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  --alive;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  --alive;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  ++alive;
  ++stand_in::events;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  --alive;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->capture = stream->capture;
  event->on = stream;
  if (stream->capture != nullptr) return cudaSuccess;
  event->is_done = std::make_shared<std::atomic<bool>>(false);
  stream->push([is_done = event->is_done] { *is_done = true; });
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->capture != nullptr) {
    if (event->capture->is_over) return cudaErrorCapturedEvent;
    if (stream->capture == nullptr) {
      stream->capture = event->capture;
      event->capture->streams.insert(stream);
    }
    if (stream->capture != event->capture) return cudaErrorStreamCaptureIsolation;
    if (stream->capture->origin == stream) stream->capture->unjoined.erase(event->on);
    return cudaSuccess;
  }
  if (stream->capture != nullptr) return cudaErrorStreamCaptureIsolation;
  if (event->is_done == nullptr) return cudaSuccess;
  stream->push([is_done = event->is_done] {
    while (!*is_done) std::this_thread::sleep_for(std::chrono::microseconds(50));
  });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (stand_in::device_is_broken) return cudaErrorLaunchFailure;
  return event->is_done == nullptr || *event->is_done ? cudaSuccess : cudaErrorNotReady;
}
