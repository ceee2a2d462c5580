#pragma once
// clang-format off
// Made with PyTorch 2.15.0+cu132 by make_witness.py. Do not edit.
//
// Bounds of the uniform and standard deviations of the normal initialisers, as PyTorch passes them
// to the functions that draw, for weights [out, in]. Kaiming: fan-in, gain of ReLU; Xavier: gain 1.
// The default is that of torch.nn.Linear, for its weight and for its bias.

namespace witness::initialisers {

struct Bounds {
  int out, in;
  double default_weight, default_bias, kaiming_uniform, kaiming_normal;
  double xavier_uniform, xavier_normal;
};

inline constexpr Bounds bounds[] = {
    {512, 784,
     0.035714285714285712, 0.035714285714285712, 0.087481776527970651, 0.050507627227610541,
     0.068041381743977156, 0.039283710065919304},
    {10, 512,
     0.044194173824159209, 0.044194173824159216, 0.10825317547305482, 0.0625, 0.10721125348377948,
     0.061898446059017287},
    {608, 1024,
     0.031249999999999997, 0.03125, 0.076546554461974323, 0.044194173824159223,
     0.060633906259083235, 0.035007002100700242},
    {96, 33,
     0.1740776559556978, 0.17407765595569785, 0.42640143271122088, 0.24618298195866548,
     0.21566554640687682, 0.12451456127293807},
    {256, 64,
     0.12499999999999999, 0.125, 0.30618621784789729, 0.17677669529663689, 0.13693063937629152,
     0.079056941504209485},
};

}  // namespace witness::initialisers
