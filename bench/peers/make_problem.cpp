// Writes a problem and its results, worked out on one rank in float:
//
//     peer_make_problem FOLDER ROWS                       for the perceptron
//     peer_make_problem FOLDER IMAGES CHANNELS EXTENT     for the convolutions

#include <cstdio>
#include <exception>

#include "peers/ours.hpp"
#include "shardwise/backend/onednn/onednn.hpp"

namespace {

namespace sw = shardwise;

template <class Architecture>
void make(const std::filesystem::path& folder, const sw::Shape& in) {
  sw::SingleRank alone;
  const auto architecture = peers::architecture_for<Architecture>(in);
  sw::Model<Architecture, sw::Context<float, sw::OneDnn, sw::SingleRank>> model(architecture, alone,
                                                                                sw::Seed{1}, in);
  std::filesystem::create_directories(folder);
  std::uint64_t number = 0;
  const auto draw = [&](const std::string& name, const sw::Shape& shape) {
    auto tensor = peers::whole_numbers(shape, number++);
    sw::write_npy(peers::file_of(folder, name), tensor.view());
    return tensor;
  };
  const auto x = draw("x", in);
  const auto dy = draw("dy", architecture.output_shape(in));
  for (const auto& one : peers::parameters_of(model))
    model.set(one.name, draw(one.name, one.shape).view());
  sw::write_npy(peers::file_of(folder, "y"), model.forward(x.view()));
  model.backward(dy.view());
  for (const auto& one : peers::parameters_of(model))
    sw::write_npy(peers::file_of(folder, "grad." + one.name),
                  model.gather_gradient(one.name).view());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3 && argc != 5) {
    std::fprintf(stderr, "usage: %s FOLDER ROWS | FOLDER IMAGES CHANNELS EXTENT\n", argv[0]);
    return 2;
  }
  const auto number = [&](int i) { return static_cast<std::size_t>(std::stoull(argv[i])); };
  using enum sw::Axis;
  if (argc == 3)
    make<peers::Mlp>(argv[1], {{batch, number(2)}, {feature, 1024}});
  else
    make<peers::Convolutions<sw::split::output>>(
        argv[1],
        {{batch, number(2)}, {channel, number(3)}, {height, number(4)}, {width, number(4)}});
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
  return 1;
}
