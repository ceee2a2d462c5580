#!/usr/bin/env python3
"""Makes values/*.hpp: what PyTorch computes for linear layers, activations, losses, initialisers,
optimisers, normalisations, convolutions, pooling, clipping, schedules, mixed precision and metrics. Run it
with a Python that has PyTorch; see README.md."""

import pathlib
from unittest import mock

import torch
from torch.nn import functional

HERE = pathlib.Path(__file__).parent


# The formulas of formula.hpp.


def made(tensor, *shape, dtype=torch.float64):
    r = torch.arange(torch.Size(shape).numel()) % 2003
    return (((r * r * tensor + r * 7919) % 2003 - 1001).to(dtype) / 1024.0).reshape(shape)


def made_labels(rows, classes):
    return (torch.arange(rows) * 7 + 3) % classes


def sample(values, count=500):
    flat = values.detach().reshape(-1)
    return flat[(torch.arange(count) * 1237 + 11) % flat.numel()]


# Writing.


def number(value):
    return f"{value:.17g}"


class Header:
    """A C++ header with the values of one subject."""

    def __init__(self, name, comment):
        self.name = name
        self.lines = [
            "#pragma once",
            "// clang-format off",
            f"// Made with PyTorch {torch.__version__} by make_witness.py. Do not edit.",
            "//",
            *(f"// {line}".rstrip() for line in comment.strip().splitlines()),
            "",
            f"namespace witness::{name} {{",
            "",
        ]

    def comment(self, text):
        self.lines.append(f"// {text}")

    def scalar(self, name, value):
        self.lines.append(f"inline constexpr double {name} = {number(value.item())};")

    def array(self, name, tensor):
        values = tensor.detach().to(torch.float64).reshape(-1).tolist()
        self.lines.append(f"inline constexpr double {name}[{len(values)}] = {{")
        self.rows(values)
        self.lines.append("};")

    def rows(self, values, indent="    "):
        line = indent
        for text in (number(value) + ", " for value in values):
            if len(line) + len(text) > 100:
                self.lines.append(line.rstrip())
                line = indent
            line += text
        self.lines.append(line.rstrip().rstrip(","))

    def write(self):
        self.lines += ["", f"}}  // namespace witness::{self.name}", ""]
        (HERE / "values" / f"{self.name}.hpp").write_text("\n".join(self.lines))


# Subjects.


def linear():
    out = Header("linear", """
y = x W^T + b and its gradients in double. Row-major.
x [5, 7] = made(1), W [6, 7] = made(2), b [6] = made(3), dy [5, 6] = made(4).
dx and dW are the same with and without bias.""")
    x, w, b = (made(1, 5, 7), made(2, 6, 7), made(3, 6))
    for tensor in (x, w, b):
        tensor.requires_grad_()
    y = functional.linear(x, w, b)
    y.backward(made(4, 5, 6))
    out.array("y", y)
    out.array("y_without_bias", functional.linear(x, w))
    out.array("dx", x.grad)
    out.array("dw", w.grad)
    out.array("db", b.grad)
    out.write()


def activations():
    out = Header("activations", """
Values and derivatives in double on one grid: -6, -5.875, ..., 6 and some large magnitudes.""")
    far = torch.tensor([8.0, 10, 20, 50, 100, 1000], dtype=torch.float64)
    grid = torch.cat([torch.arange(-48, 49).to(torch.float64) / 8, far, -far])
    out.array("x", grid)
    functions = {
        "relu": functional.relu,
        "gelu_erf": lambda x: functional.gelu(x, approximate="none"),
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "silu": functional.silu,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
    }
    for name, function in functions.items():
        x = grid.clone().requires_grad_()
        y = function(x)
        y.sum().backward()
        out.array(name, y)
        out.array(f"{name}_derivative", x.grad)
    out.write()


def losses():
    out = Header("losses", """
Losses and their gradients in double. Row-major.
mean squared error: prediction [4, 5] = made(5), target [4, 5] = made(6), mean over all elements.
cross-entropy: mean over rows, label of row r = made_label(r, classes); logits
  plain    [6, 10]: 4 made(7)
  shifted  [6, 10]: 4 made(7), +10000 on even rows, -10000 on odd ones
  wide     [6, 10]: 10000 made(7), so that most probabilities are 0
  sequence [2, 3, 5] (batch, sequence, class), flattened to [6, 5]: 4 made(8)
Names that end in _smooth have label smoothing 0.1.""")
    prediction = made(5, 4, 5).requires_grad_()
    loss = functional.mse_loss(prediction, made(6, 4, 5))
    loss.backward()
    out.scalar("mean_squared", loss)
    out.array("mean_squared_gradient", prediction.grad)

    shift = torch.tensor([1e4, -1e4] * 3, dtype=torch.float64).reshape(6, 1)
    cases = {
        "plain": 4 * made(7, 6, 10),
        "shifted": 4 * made(7, 6, 10) + shift,
        "wide": 10000 * made(7, 6, 10),
        "sequence": 4 * made(8, 2, 3, 5).flatten(0, 1),
    }
    for name, logits in cases.items():
        for smoothing, suffix in ((0.0, ""), (0.1, "_smooth")):
            z = logits.clone().requires_grad_()
            loss = functional.cross_entropy(
                z, made_labels(*z.shape), reduction="mean", label_smoothing=smoothing)
            loss.backward()
            out.scalar(f"{name}{suffix}", loss)
            out.array(f"{name}{suffix}_gradient", z.grad)
    out.write()


def recorded(method, call):
    """The arguments with which `call` calls the tensor method `method` on each tensor that it fills,
    which it still does; checks that the numbers drawn fit them."""
    original = getattr(torch.Tensor, method)
    calls = []

    def record(tensor, first, second, **others):
        calls.append((first, second))
        result = original(tensor, first, second, **others)
        if method == "uniform_":
            largest = tensor.abs().max().item()
            least = 0.9 * second if tensor.numel() > 100 else 0
            assert first == -second and least < largest <= second * (1 + 1e-6), largest
        else:
            assert first == 0 and abs(tensor.std().item() / second - 1) < 0.05, tensor.std()
        return result

    with mock.patch.object(torch.Tensor, method, record):
        call()
    return [second for _, second in calls]


def initialisers():
    out = Header("initialisers", """
Bounds of the uniform and standard deviations of the normal initialisers, as PyTorch passes them
to the functions that draw, for weights [out, in]. Kaiming: fan-in, gain of ReLU; Xavier: gain 1.
The default is that of torch.nn.Linear, for its weight and for its bias.""")
    out.lines += [
        "struct Bounds {",
        "  int out, in;",
        "  double default_weight, default_bias, kaiming_uniform, kaiming_normal;",
        "  double xavier_uniform, xavier_normal;",
        "};",
        "",
        "inline constexpr Bounds bounds[] = {",
    ]
    torch.manual_seed(1)
    init = torch.nn.init
    shapes = ((512, 784), (10, 512), (608, 1024), (96, 33), (256, 64))
    for shape in shapes:
        w = torch.empty(shape)
        weight, bias = recorded("uniform_", lambda: torch.nn.Linear(shape[1], shape[0]))
        values = [weight, bias]
        for method, function in (
            ("uniform_", lambda: init.kaiming_uniform_(w, nonlinearity="relu")),
            ("normal_", lambda: init.kaiming_normal_(w, nonlinearity="relu")),
            ("uniform_", lambda: init.xavier_uniform_(w)),
            ("normal_", lambda: init.xavier_normal_(w)),
        ):
            values += recorded(method, function)
        assert len(values) == 6, values
        out.lines.append(f"    {{{shape[0]}, {shape[1]},")
        out.rows(values, indent="     ")
        out.lines[-1] += "},"
    out.lines.append("};")
    out.write()


def optimisers():
    out = Header("optimisers", """
Six parameters over ten steps in double: start made(9, i), gradient of step t (from 0)
made(10, 6 t + i). values[t] are the parameters after step t. Dampening is 0, weight decay of SGD is
added to the gradient, that of AdamW is decoupled.""")
    out.lines += [
        "struct Sgd {",
        "  double rate, momentum, weight_decay;",
        "  bool nesterov;",
        "  double values[10][6];",
        "};",
        "",
        "struct AdamW {",
        "  double rate, beta1, beta2, epsilon, weight_decay;",
        "  double values[10][6];",
        "};",
        "",
    ]

    def run(make):
        parameter = torch.nn.Parameter(made(9, 6))
        optimiser = make([parameter])
        gradients = made(10, 10, 6)
        steps = []
        for gradient in gradients:
            parameter.grad = gradient.clone()
            optimiser.step()
            steps.append(parameter.detach().clone())
        return steps

    def emit(settings, steps):
        out.lines.append(f"    {{{settings}, {{")
        for step in steps:
            out.lines.append("        {" + ", ".join(map(number, step.tolist())) + "},")
        out.lines.append("    }},")

    out.lines.append("inline constexpr Sgd sgd[] = {")
    for rate, momentum, decay, nesterov in (
        (0.1, 0.0, 0.0, False), (0.1, 0.9, 0.0, False), (0.1, 0.9, 0.0, True),
        (0.1, 0.0, 0.01, False), (0.1, 0.9, 0.01, False), (0.1, 0.9, 0.01, True),
    ):
        steps = run(lambda p: torch.optim.SGD(
            p, lr=rate, momentum=momentum, weight_decay=decay, nesterov=nesterov))
        emit(f"{rate}, {momentum}, {decay}, {str(nesterov).lower()}", steps)
    out.lines += ["};", ""]

    default = torch.optim.AdamW([torch.nn.Parameter(made(9, 6))]).defaults
    assert (default["lr"], default["betas"], default["eps"], default["weight_decay"]) == (
        1e-3, (0.9, 0.999), 1e-8, 0.01)
    out.comment("The first has PyTorch's defaults.")
    out.lines.append("inline constexpr AdamW adamw[] = {")
    for rate, beta1, beta2, epsilon, decay in (
        (1e-3, 0.9, 0.999, 1e-8, 0.01), (0.05, 0.8, 0.95, 1e-2, 0.1), (0.01, 0.9, 0.999, 1e-8, 0.0),
    ):
        steps = run(lambda p: torch.optim.AdamW(
            p, lr=rate, betas=(beta1, beta2), eps=epsilon, weight_decay=decay))
        emit(f"{rate}, {beta1}, {beta2}, {epsilon}, {decay}", steps)
    out.lines.append("};")
    out.write()


def norms():
    out = Header("norms", """
Normalisations over the last axis and their gradients in double. Row-major.
x [batch, sequence, features] = made(15) + offset, w [features] = made(16), b [features] = made(17),
dy = made(18) in the shape of x. With weight and bias: y, dx, dw, db; with the weight alone:
y_weight, and the same dx and dw; with neither: y_plain, dx_plain. RMS normalisation has no bias in
PyTorch: there y is y_weight + b.""")
    out.lines[-2:-2] = ["#include <cstddef>", "#include <span>", ""]
    out.lines += [
        "struct Case {",
        "  std::size_t batch, sequence, features;",
        "  double offset, epsilon;",
        "  std::span<const double> y, y_weight, y_plain, dx, dx_plain, dw, db;",
        "};",
        "",
    ]
    functions = {
        "layer": lambda x, w, b, eps: functional.layer_norm(x, x.shape[-1:], w, b, eps),
        "rms": lambda x, w, b, eps: functional.rms_norm(x, x.shape[-1:], w, eps) + b,
    }
    cases = (  # batch, sequence, features, offset, epsilon
        (1, 5, 7, 0, 1e-5), (2, 3, 17, 0, 0.1), (2, 1, 1, 0, 0.5), (1, 2, 40, 10000, 1e-5))
    for kind, function in functions.items():
        table = []
        for number, (*shape, offset, epsilon) in enumerate(cases):
            x = (made(15, *shape) + offset).requires_grad_()
            w, b = (made(16, shape[-1]).requires_grad_(), made(17, shape[-1]).requires_grad_())
            dy = made(18, *shape)
            zero = torch.zeros_like(b)
            plain = function(x, None, zero, epsilon)
            (dx_plain,) = torch.autograd.grad(plain, x, dy)
            weighted = function(x, w, zero, epsilon)
            y = function(x, w, b, epsilon)
            dx, dw, db = torch.autograd.grad(y, (x, w, b), dy)
            names = []
            for what, tensor in (("y", y), ("y_weight", weighted), ("y_plain", plain), ("dx", dx),
                                 ("dx_plain", dx_plain), ("dw", dw), ("db", db)):
                names.append(f"{kind}{number}_{what}")
                out.array(names[-1], tensor)
            sizes = ", ".join(map(str, (*shape, offset, epsilon)))
            table.append(f"    {{{sizes},\n     {', '.join(names)}}},")
        out.lines += ["", f"inline constexpr Case {kind}[] = {{", *table, "};"]
    out.write()


def convolutions():
    out = Header("convolutions", """
Convolutions and their gradients in double. Row-major.
x = made(80), w = made(81), b = made(82), dy = made(83), of these shapes:
  text       x [2, 6, 9], w [4, 3, 3]: stride 2, padding 2, dilation 2, 2 groups
  picture    x [2, 3, 7, 5], w [4, 3, 3, 2]: stride (2, 1), padding (1, 2), dilation (1, 3)
  kept       x [2, 3, 4, 5], w [2, 3, 4, 3]: padding 'same', dilation (1, 2)
  askew      x [1, 2, 4, 3], w [3, 2, 2, 3]: padding 0 above, 3 below, 2 left, 1 right; stride 3
  depthwise  x [2, 3, 4, 4], w [6, 1, 3, 3]: padding 1, 3 groups, without b
  body       x [1, 2, 4, 3, 4], w [3, 2, 2, 3, 2]: stride (2, 1, 2), padding (1, 0, 1),
             dilation (1, 1, 2)
`begins` has what the default initialisers of torch.nn.Conv1d, 2d and 3d pass to the functions that
draw, and the standard deviations and bounds of others for their weights, for `in` and `out`
channels and kernels of these sizes.""")
    cases = {
        "text": ((2, 6, 9), (4, 3, 3), True, lambda x, w, b: functional.conv1d(
            x, w, b, stride=2, padding=2, dilation=2, groups=2)),
        "picture": ((2, 3, 7, 5), (4, 3, 3, 2), True, lambda x, w, b: functional.conv2d(
            x, w, b, stride=(2, 1), padding=(1, 2), dilation=(1, 3))),
        "kept": ((2, 3, 4, 5), (2, 3, 4, 3), True, lambda x, w, b: functional.conv2d(
            x, w, b, padding="same", dilation=(1, 2))),
        "askew": ((1, 2, 4, 3), (3, 2, 2, 3), True, lambda x, w, b: functional.conv2d(
            functional.pad(x, (2, 1, 0, 3)), w, b, stride=3)),
        "depthwise": ((2, 3, 4, 4), (6, 1, 3, 3), False, lambda x, w, b: functional.conv2d(
            x, w, None, padding=1, groups=3)),
        "body": ((1, 2, 4, 3, 4), (3, 2, 2, 3, 2), True, lambda x, w, b: functional.conv3d(
            x, w, b, stride=(2, 1, 2), padding=(1, 0, 1), dilation=(1, 1, 2))),
    }
    for name, (x_shape, w_shape, has_bias, function) in cases.items():
        x, w, b = made(80, *x_shape), made(81, *w_shape), made(82, w_shape[0])
        for tensor in (x, w, b):
            tensor.requires_grad_()
        y = function(x, w, b)
        y.backward(made(83, *y.shape))
        out.array(f"{name}_y", y)
        out.array(f"{name}_dx", x.grad)
        out.array(f"{name}_dw", w.grad)
        if has_bias:
            out.array(f"{name}_db", b.grad)

    out.lines += [
        "",
        "struct Begins {",
        "  int in, out, groups, kernel[3];",
        "  double default_weight, default_bias, kaiming_uniform, kaiming_normal;",
        "  double xavier_uniform, xavier_normal;",
        "};",
        "",
        "inline constexpr Begins begins[] = {",
    ]
    torch.manual_seed(1)
    for module, channels, groups, kernel in (
        (torch.nn.Conv1d, (24, 96), 4, (7,)), (torch.nn.Conv2d, (16, 64), 1, (3, 5)),
        (torch.nn.Conv3d, (12, 36), 6, (3, 1, 5)),
    ):
        layers = []
        weight, bias = recorded(
            "uniform_", lambda: layers.append(module(*channels, kernel, groups=groups)))
        w = layers[0].weight.detach()
        values = [weight, bias] + [
            value
            for method, function in (
                ("uniform_", lambda: torch.nn.init.kaiming_uniform_(w, nonlinearity="relu")),
                ("normal_", lambda: torch.nn.init.kaiming_normal_(w, nonlinearity="relu")),
                ("uniform_", lambda: torch.nn.init.xavier_uniform_(w)),
                ("normal_", lambda: torch.nn.init.xavier_normal_(w)),
            )
            for value in recorded(method, function)
        ]
        sizes = ", ".join(map(str, (1,) * (3 - len(kernel)) + kernel))
        out.lines.append(f"    {{{channels[0]}, {channels[1]}, {groups}, {{{sizes}}},")
        out.rows(values, indent="     ")
        out.lines[-1] += "},"
    out.lines.append("};")
    out.write()


def pooling():
    out = Header("pooling", """
Pooling and its gradients in double. Row-major. x = floor(3 made(90)), so that many maxima are equal,
and dy = made(91) in the shape of y.
max1    x [2, 2, 11], kernel 4, stride 3, padding 2
max2    x [2, 3, 7, 9], kernel (3, 2), stride (2, 1), padding (1, 1), dilation (1, 2)
max3    x [1, 2, 5, 4, 6], kernel 3, stride 2, padding 1
mean1   x [2, 2, 11], kernel 4, stride 3, padding 2
mean2   x [2, 3, 7, 9], kernel (3, 2), stride (2, 1), padding (1, 1); own2: padding is not counted
mean3   x [1, 2, 5, 4, 6], kernel 3, stride 2, padding 1, not counted
global2 x [2, 3, 7, 9]""")
    shapes = {1: (2, 2, 11), 2: (2, 3, 7, 9), 3: (1, 2, 5, 4, 6)}
    two = {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 1)}
    cases = {
        "max1": lambda x: functional.max_pool1d(x, 4, 3, 2),
        "max2": lambda x: functional.max_pool2d(x, **two, dilation=(1, 2)),
        "max3": lambda x: functional.max_pool3d(x, 3, 2, 1),
        "mean1": lambda x: functional.avg_pool1d(x, 4, 3, 2),
        "mean2": lambda x: functional.avg_pool2d(x, **two),
        "own2": lambda x: functional.avg_pool2d(x, **two, count_include_pad=False),
        "mean3": lambda x: functional.avg_pool3d(x, 3, 2, 1, count_include_pad=False),
        "global2": lambda x: functional.adaptive_avg_pool2d(x, 1),
    }
    for name, function in cases.items():
        x = torch.floor(3 * made(90, *shapes[int(name[-1])])).requires_grad_()
        y = function(x)
        y.backward(made(91, *y.shape))
        out.array(f"{name}_y", y)
        out.array(f"{name}_dx", x.grad)
    out.write()


def batch_norm():
    out = Header("batch_norm", """
Batch normalisation and its gradients in double. Row-major, epsilon 1e-5, momentum 0.1.
x [batch, channels, ...] = made(92) + offset, w [channels] = made(93), b [channels] = made(94),
dy = made(95) in the shape of x. Statistics run from 0 and 1: running_mean and running_var are those
after x, and evaluated is what they make of x. y_plain and dx_plain are without w and b.""")
    out.lines[-2:-2] = ["#include <cstddef>", "#include <span>", ""]
    out.lines += [
        "struct Case {",
        "  std::size_t batch, channels, height, width;  // no height or width if 0",
        "  double offset;",
        "  std::span<const double> y, dx, dw, db, running_mean, running_var, evaluated;",
        "  std::span<const double> y_plain, dx_plain;",
        "};",
        "",
    ]
    table = []
    for number, (*shape, offset) in enumerate(
            ((6, 5, 0, 0, 0), (3, 4, 0, 5, 0), (2, 3, 3, 2, 0), (5, 2, 3, 2, 10000))):
        real = [extent for extent in shape if extent > 0]
        x = (made(92, *real) + offset).requires_grad_()
        w, b = (made(93, shape[1]).requires_grad_(), made(94, shape[1]).requires_grad_())
        dy = made(95, *real)
        mean, var = torch.zeros(shape[1]).double(), torch.ones(shape[1]).double()
        plain = functional.batch_norm(x, None, None, training=True)
        (dx_plain,) = torch.autograd.grad(plain, x, dy)
        y = functional.batch_norm(x, mean, var, w, b, training=True)
        dx, dw, db = torch.autograd.grad(y, (x, w, b), dy)
        evaluated = functional.batch_norm(x, mean, var, w, b, training=False)
        names = []
        for what, tensor in (("y", y), ("dx", dx), ("dw", dw), ("db", db), ("running_mean", mean),
                             ("running_var", var), ("evaluated", evaluated), ("y_plain", plain),
                             ("dx_plain", dx_plain)):
            names.append(f"case{number}_{what}")
            out.array(names[-1], tensor)
        table.append(f"    {{{', '.join(map(str, (*shape, offset)))},\n     {', '.join(names)}}},")
    out.lines += ["", "inline constexpr Case cases[] = {", *table, "};"]
    out.write()


def clipping():
    out = Header("clipping", """
Norms of four gradients together, in double: 3 made(60), 3 made(61), 3 made(62), 3 made(63) of the
shapes [13, 9], [13], [10, 13], [10], as torch.nn.utils.clip_grad_norm_ gives and clips them; the
clipped ones are the first and the last of the four.
Then five steps of SGD (learning rate 0.5) on one linear layer, W [5, 7] = made(64), b [5] =
made(65), x [6, 7] = made(66), target [6, 5] = made(67), mean squared error, the norm clipped to 0.25:
norms before clipping, losses, and W and b after the last step.""")
    shapes = ((13, 9), (13,), (10, 13), (10,))
    for kind, name in ((2.0, "euclidean"), (float("inf"), "infinity")):
        tensors = [torch.nn.Parameter(torch.zeros(s, dtype=torch.float64)) for s in shapes]
        for i, tensor in enumerate(tensors):
            tensor.grad = 3 * made(60 + i, *shapes[i])
        norm = torch.nn.utils.clip_grad_norm_(tensors, 1.5, norm_type=kind, error_if_nonfinite=True)
        out.scalar(f"{name}_norm", norm)
        out.array(f"{name}_first", tensors[0].grad)
        out.array(f"{name}_last", tensors[3].grad)
    w, b = (torch.nn.Parameter(made(64, 5, 7)), torch.nn.Parameter(made(65, 5)))
    optimiser = torch.optim.SGD([w, b], lr=0.5)
    norms, all_losses = [], []
    for _ in range(5):
        optimiser.zero_grad()
        loss = functional.mse_loss(functional.linear(made(66, 6, 7), w, b), made(67, 6, 5))
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_([w, b], 0.25))
        all_losses.append(loss.detach())
        optimiser.step()
    out.array("norms", torch.stack(norms))
    out.array("losses", torch.stack(all_losses))
    out.array("w", w)
    out.array("b", b)
    out.write()


def schedules():
    out = Header("schedules", """
Learning rates of the steps 0, 1, ..., all from a rate of 0.4.
step: StepLR(step_size=7, gamma=0.3).  cosine: CosineAnnealingLR(T_max=20, eta_min=0.01).
Names that begin in warm_: SequentialLR of LinearLR(start_factor=0.1, total_iters=5) and, from
step 5 on, a constant rate, that StepLR or that CosineAnnealingLR.""")
    rates = torch.optim.lr_scheduler

    def run(make, count):
        optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4)
        schedule = make(optimiser)
        found = []
        for _ in range(count):
            found.append(optimiser.param_groups[0]["lr"])
            optimiser.step()
            schedule.step()
        return torch.tensor(found, dtype=torch.float64)

    kinds = {
        "constant": lambda o: rates.ConstantLR(o, factor=1.0, total_iters=1),
        "step": lambda o: rates.StepLR(o, step_size=7, gamma=0.3),
        "cosine": lambda o: rates.CosineAnnealingLR(o, T_max=20, eta_min=0.01),
    }
    for name, make in kinds.items():
        if name != "constant":
            out.array(name, run(make, 21))
        out.array(f"warm_{name}", run(lambda o: rates.SequentialLR(
            o, [rates.LinearLR(o, start_factor=0.1, total_iters=5), make(o)], milestones=[5]), 26))
    out.write()


def mixed_precision():
    out = Header("mixed_precision", """
Four steps of SGD (learning rate 0.1, momentum 0.9) on linear, ReLU, linear with cross-entropy, with
parameters, their gradients and moments in float and everything else in bfloat16 or float16.
x [6, 9] = made(50), W1 [13, 9] = made(51) / 2, b1 [13] = made(52) / 2, W2 [5, 13] = made(53) / 2,
b2 [5] = made(54) / 2, label of row r = made_label(r, 5). Each product is a sum in double with the
bias in it, rounded to float and then to the narrow dtype, of which copies of the parameters are too;
the loss is computed in float from the narrow logits. The gradient of the loss is multiplied by the
scale (1 and 1024) in float, then rounded; gradients of parameters are rounded to the narrow dtype,
then divided by the scale in float.
scales: those that torch.amp.GradScaler has for its steps 0, 1, ... with an initial scale of 8,
growth 2, backoff 0.5 and an interval of 3; steps 4, 5 and 10 overflow.""")
    for dtype, name, scale in ((torch.bfloat16, "bf16", 1.0), (torch.float16, "fp16", 1024.0)):
        def narrow(tensor, dtype=dtype):
            return tensor.to(torch.float32).to(dtype).to(torch.float64)

        x = narrow(made(50, 6, 9))
        labels = made_labels(6, 5)
        masters = {
            "w1": made(51, 13, 9), "b1": made(52, 13), "w2": made(53, 5, 13), "b2": made(54, 5)}
        masters = {key: torch.nn.Parameter((m / 2).to(torch.float32)) for key, m in masters.items()}
        optimiser = torch.optim.SGD(masters.values(), lr=0.1, momentum=0.9)
        all_losses = []
        for _ in range(4):
            w1, b1, w2, b2 = (narrow(m.detach()) for m in masters.values())
            hidden = narrow(torch.relu(x @ w1.T + b1))
            logits = narrow(hidden @ w2.T + b2).to(torch.float32).requires_grad_()
            loss = functional.cross_entropy(logits, labels)
            all_losses.append(loss.detach())
            loss.backward()
            dy = narrow(logits.grad * scale)
            dh = narrow(dy @ w2) * (hidden > 0)
            gradients = {"w1": dh.T @ x, "b1": dh.sum(0), "w2": dy.T @ hidden, "b2": dy.sum(0)}
            for key, gradient in gradients.items():
                masters[key].grad = narrow(gradient).to(torch.float32) / scale
            optimiser.step()
        out.array(f"{name}_losses", torch.stack(all_losses))
        for key, master in masters.items():
            out.array(f"{name}_{key}", master)
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=8.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=3)
    parameter = torch.nn.Parameter(torch.ones(1))
    optimiser = torch.optim.SGD([parameter], lr=0.1)
    scales = []
    for step in range(14):
        scales.append(scaler.get_scale())
        optimiser.zero_grad()
        scaler.scale(parameter.sum()).backward()
        if step in (4, 5, 10):
            parameter.grad.fill_(float("inf"))
        before = parameter.item()
        scaler.step(optimiser)
        assert (parameter.item() == before) == (step in (4, 5, 10))
        scaler.update()
    out.array("scales", torch.tensor(scales))
    out.write()


def metrics():
    out = Header("metrics", """
In how many of 40 rows the label, made_label(row, 10), is among the k largest of the logits
[40, 10] = made(72); for k = 1 to 10.""")
    logits, labels = made(72, 40, 10), made_labels(40, 10)
    assert all(row.unique().numel() == 10 for row in logits)
    counts = [(logits.topk(k).indices == labels[:, None]).any(1).sum() for k in range(1, 11)]
    out.array("top_k", torch.stack(counts))
    out.write()


def unsharded():
    out = Header("unsharded", """
One step of SGD on one linear layer, the whole of it on one rank. Row-major.
X [32, 1024] = made(11), W [608, 1024] = made(12) / 32, b [608] = made(13),
target [32, 608] = made(14), y = X W^T + b, loss = mean over all elements of (y - target)^2,
learning rate 0.3. Names that end in _float were computed in float, the others in double.
Of the large tensors: element sample_index(k, size) for k below 500, and over all elements the sum
and the sum of squares.""")
    for dtype, suffix in ((torch.float64, ""), (torch.float32, "_float")):
        x = made(11, 32, 1024, dtype=dtype).requires_grad_()
        w = (made(12, 608, 1024, dtype=dtype) / 32).requires_grad_()
        b = made(13, 608, dtype=dtype).requires_grad_()
        y = functional.linear(x, w, b)
        loss = functional.mse_loss(y, made(14, 32, 608, dtype=dtype))
        loss.backward()
        torch.optim.SGD([w, b], lr=0.3).step()
        out.scalar(f"loss{suffix}", loss)
        out.array(f"db{suffix}", b.grad)
        out.array(f"updated_b{suffix}", b)
        for name, tensor in (("y", y), ("dw", w.grad), ("dx", x.grad), ("updated_w", w)):
            out.array(f"{name}{suffix}", sample(tensor))
            if dtype == torch.float64:
                out.scalar(f"{name}_sum", tensor.sum())
                out.scalar(f"{name}_squares", (tensor * tensor).sum())
    out.write()


if __name__ == "__main__":
    (HERE / "values").mkdir(exist_ok=True)
    for subject in (linear, activations, losses, initialisers, optimisers, norms,
                    convolutions, pooling, batch_norm, clipping, schedules, mixed_precision, metrics, unsharded):
        subject()
