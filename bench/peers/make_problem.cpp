// Writes a problem and its results, worked out on one rank in float:
//
//     peer_make_problem FOLDER ROWS                       for the perceptron
//     peer_make_problem FOLDER IMAGES CHANNELS EXTENT     for the convolutions

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

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
  std::vector<std::size_t> sizes;
  for (int i = 2; i < argc; ++i)
    if (std::atoi(argv[i]) > 0) sizes.push_back(static_cast<std::size_t>(std::atoi(argv[i])));
  if ((argc != 3 && argc != 5) || static_cast<int>(sizes.size()) != argc - 2) {
    std::fprintf(stderr, "usage: %s FOLDER ROWS | FOLDER IMAGES CHANNELS EXTENT\n", argv[0]);
    return 2;
  }
  using enum sw::Axis;
  if (sizes.size() == 1)
    make<peers::Mlp>(argv[1], {{batch, sizes[0]}, {feature, 1024}});
  else
    make<peers::Convolutions<sw::split::output>>(
        argv[1], {{batch, sizes[0]}, {channel, sizes[1]}, {height, sizes[2]}, {width, sizes[2]}});
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
  return 1;
}
