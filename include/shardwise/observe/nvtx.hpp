#pragma once
// An observer that marks ranges for NVIDIA's profilers. Needs the header nvtx3/nvToolsExt.h of the
// CUDA toolkit, and no library: without a profiler a range costs almost nothing.

#include <nvtx3/nvToolsExt.h>

#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>

#include "shardwise/model/observer.hpp"

namespace shardwise {

/// Shows in Nsight Systems what the model of one rank does: nested ranges for phases, parts, layers
/// and redistributions, in the domain "shardwise".
///
///     Model<Mlp, Context<float, Reference, ThreadCommunicator, NvtxObserver>> model(ranks, seed);
///
/// The first use of a range allocates its name; later uses allocate nothing.
class NvtxObserver {
 public:
  /// As `Observer` says.
  void begin(const Work& work) {
    nvtxEventAttributes_t range{};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    range.message.registered = title_of(work);
    nvtxDomainRangePushEx(domain(), &range);
  }

  /// As `Observer` says.
  void end() noexcept { nvtxDomainRangePop(domain()); }

 private:
  /// The identity of a range.
  struct Key {
    std::string (*name)();
    std::size_t number;
    Work::Kind kind;
    Operation operation;

    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      return std::hash<std::string (*)()>{}(key.name) + key.number;
    }
  };

  static nvtxDomainHandle_t domain() {
    static const nvtxDomainHandle_t created = nvtxDomainCreateA("shardwise");
    return created;
  }

  nvtxStringHandle_t title_of(const Work& work) {
    const Key key{work.name, work.number, work.kind, work.collective.operation};
    if (const auto known = titles_.find(key); known != titles_.end()) return known->second;
    std::string title = work.name();
    if (work.kind == Work::Kind::part) title.insert(0, std::to_string(work.number) + ": ");
    if (work.kind == Work::Kind::collective) {
      title.insert(0, std::string(name(work.collective.operation)) + ": ");
    }
    const nvtxStringHandle_t made = nvtxDomainRegisterStringA(domain(), title.c_str());
    titles_.emplace(key, made);
    return made;
  }

  std::unordered_map<Key, nvtxStringHandle_t, Hash> titles_;
};

static_assert(Observer<NvtxObserver>);

}  // namespace shardwise
