// Steps that cannot be recorded: by a backend that records nothing, among ranks that meet on the
// host, with a gradient of the input, or with a loss that the host reads.

#include "shardwise/train/recorded_step.hpp"

#include <type_traits>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/device_threads.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/sgd.hpp"

using namespace shardwise;

/// A backend of a device, by its declarations.
struct Recorder : Reference {
  struct Event {
    explicit Event(Recorder&) {}
    void record() {}
  };
  struct Recording {
    template <class Work>
    Recording(Recorder&, const Work& work) {
      work();
    }
    void launch() {}
  };
  template <class T>
  struct Linear : Reference::Linear<T> {
    Linear(Recorder& backend, std::size_t in, std::size_t out)
        : Reference::Linear<T>(backend, in, out) {}
  };
  MemorySource& memory() { return host_memory(); }
  bool reaches(const void*) const { return true; }
  void wait_for(const Event&) {}
  void enable_peer_access(const Event&) {}
  template <class A, class Terms, class Combine, class Put>
  void reduce_each(std::size_t, std::size_t, Adjacent, A, const Terms&, const Combine&,
                   const Put&) {}
  template <class T>
  void to_host(const T*, std::size_t, T*) {}
  template <class T>
  void to_device(const T*, std::size_t, T*) {}
};

struct ReadLoss {
  template <Layout L>
  using exchanges = std::tuple<>;
  template <class Frame, class Prediction, class Target, class Gradient>
  double operator()(Frame&, Prediction, const Target&, Gradient) const {
    return 0;
  }
};

#if CASE == 1  // expect: a RecordedStep is for backends that record their work, like Cuda
using Machine = Reference;
#else
using Machine = Recorder;
#endif

#if CASE == 2  // expect: a RecordedStep is for one rank, or for ranks over NCCL
using Ranks = DeviceThreadCommunicator<Recorder>;
#else
using Ranks = SingleRank;
#endif

#if CASE == 3  // expect: a RecordedStep shows nobody the gradient of the input
using Use = TrainWithInputGradient;
#else
using Use = Train;
#endif

#if CASE == 4  // expect: this loss reads a number from the device in each step
using Chosen = ReadLoss;
#else
using Chosen = CrossEntropy;
#endif

using Net = Model<Linear<split::none, 8, 4>, Context<float, Machine, Ranks>,
                  Ends<Invariant, Invariant>, Use>;

double last_loss(Net& model, Net::input_view x, View<const std::int32_t, Invariant> labels) {
  Optimizer optimizer(model, Sgd{});
  RecordedStep step(model, optimizer, Chosen{}, x, labels);
  step.launch();
  return step.loss();
}
