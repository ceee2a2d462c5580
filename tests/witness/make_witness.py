#!/usr/bin/env python3
"""Makes values/layers.safetensors, losses.safetensors, far.safetensors, training.safetensors, networks.safetensors and
unsharded.safetensors: what PyTorch computes, row-major and all in F64. Run it with a Python that has PyTorch and safetensors; see README.md.

A function below makes a group: of `linear` in values/layers.safetensors, "linear/with_bias/dx" is one
tensor. What it says first is what goes in and what comes out. A gradient is named after what it is of:
dx, dweight, dbias."""

import pathlib
from unittest import mock

import torch
from torch import nn
from safetensors.torch import save_file
from torch.nn import functional

HERE = pathlib.Path(__file__).parent


# The formulas of formula.hpp.


def made(tensor, *shape, dtype=torch.float64):
    r = torch.arange(torch.Size(shape).numel()) % 2003
    return (((r * r * tensor + r * 7919) % 2003 - 1001).to(dtype) / 1024.0).reshape(shape)


def coarse(tensor, *shape):
    """made, down to a multiple of 1/64, which bfloat16 has too."""
    return torch.floor(64 * made(tensor, *shape)) / 64


def made_labels(rows, classes):
    return (torch.arange(rows) * 7 + 3) % classes


def sample(values, count=500):
    flat = values.detach().reshape(-1)
    return flat[(torch.arange(count) * 1237 + 11) % flat.numel()]


# What groups share.


def flat(tree, prefix=""):
    """The tensors and numbers of nested dictionaries, by names with slashes in between."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}/")
        else:
            tensor = torch.as_tensor(value, dtype=torch.float64).detach().contiguous()
            yield f"{prefix}{name}", tensor.clone()


def with_gradients(function, number, made=made, **inputs):
    """y of function(x, weight, bias), and its gradients where dy = made(number)."""
    inputs = {name: tensor.clone().requires_grad_() for name, tensor in inputs.items()}
    y = function(**inputs)
    gradients = torch.autograd.grad(y, list(inputs.values()), made(number, *y.shape))
    return {"y": y} | {f"d{name}": gradient for name, gradient in zip(inputs, gradients)}


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


# Layers.


def activations():
    """Values and derivatives at x: -6, -5.875, ..., 6 and some large magnitudes."""
    far = torch.tensor([8.0, 10, 20, 50, 100, 1000], dtype=torch.float64)
    grid = torch.cat([torch.arange(-48, 49).to(torch.float64) / 8, far, -far])
    functions = {
        "relu": functional.relu,
        "gelu": lambda x: functional.gelu(x, approximate="none"),
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "silu": functional.silu,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "leaky_relu": functional.leaky_relu,
        "leaky_relu_fifth": lambda x: functional.leaky_relu(x, 0.2),
        "elu": functional.elu,
        "elu_half": lambda x: functional.elu(x, 0.5),
        "softplus": functional.softplus,
        "hard_swish": functional.hardswish,
    }
    group = {"x": grid}
    for name, function in functions.items():
        x = grid.clone().requires_grad_()
        y = function(x)
        y.sum().backward()
        group[name] = {"values": y, "slopes": x.grad}
    return group


def parametric_relu():
    """x = made(90), weight = made(91) and dy = made(92); in `one` there is one weight for all channels."""
    cases = {"one": ((2, 5, 3, 2), 1), "images": ((2, 5, 3, 2), 5), "rows": ((4, 7), 7)}
    return {
        name: with_gradients(functional.prelu, 92, x=made(90, *shape), weight=made(91, weights))
        for name, (shape, weights) in cases.items()
    }


def softmax():
    """Over the last axis: x [batch, sequence, features] = scale made(90), dy = made(91)."""
    cases = ((2, 3, 7, 4), (1, 2, 40, 1000), (2, 2, 1, 1))
    return {
        case: {"scale": scale, "rows": with_gradients(
            lambda x: functional.softmax(x, -1), 91, x=scale * made(90, *shape))}
        for case, (*shape, scale) in enumerate(cases)
    }


def linear():
    """y = x W^T + b: x [5, 7] = made(1), W [6, 7] = made(2), b [6] = made(3), dy = made(4)."""
    x, weight, bias = made(1, 5, 7), made(2, 6, 7), made(3, 6)

    def layer(x, weight, bias=None):
        return functional.linear(x, weight, bias)

    return {
        "with_bias": with_gradients(layer, 4, x=x, weight=weight, bias=bias),
        "without_bias": with_gradients(layer, 4, x=x, weight=weight),
    }


def norms():
    """Over the last axis: x [batch, sequence, features] = made(15) + offset, weight = made(16),
    bias = made(17), dy = made(18); `both` has weight and bias, `weight` no bias, `plain` neither.
    RMS normalisation has no bias in PyTorch: there it is added."""

    def layer_norm(x, weight=None, bias=None):
        return functional.layer_norm(x, x.shape[-1:], weight, bias, epsilon)

    def rms_norm(x, weight=None, bias=0):
        return functional.rms_norm(x, x.shape[-1:], weight, epsilon) + bias

    cases = (  # batch, sequence, features, offset, epsilon
        (1, 5, 7, 0, 1e-5), (2, 3, 17, 0, 0.1), (2, 1, 1, 0, 0.5), (1, 2, 40, 10000, 1e-5))
    group = {"layer": {}, "rms": {}}
    for case, (*shape, offset, epsilon) in enumerate(cases):
        x, weight, bias = made(15, *shape) + offset, made(16, shape[-1]), made(17, shape[-1])
        for kind, function in (("layer", layer_norm), ("rms", rms_norm)):
            group[kind][case] = {
                "offset": offset,
                "epsilon": epsilon,
                "both": with_gradients(function, 18, x=x, weight=weight, bias=bias),
                "weight": with_gradients(function, 18, x=x, weight=weight),
                "plain": with_gradients(function, 18, x=x),
            }
    return group


def batch_norm():
    """x [batch, channels, ...] = made(92) + offset, weight = made(93), bias = made(94), dy = made(95);
    epsilon 1e-5, momentum 0.1; `both` has weight and bias, `plain` neither. Statistics run from 0
    and 1: running_mean and running_var are those after x, and evaluated is what they make of x."""
    group = {}
    for case, (*shape, offset) in enumerate(((6, 5, 0), (3, 4, 5, 0), (2, 3, 3, 2, 0), (5, 2, 3, 2, 10000))):
        x = made(92, *shape) + offset
        affine = {"weight": made(93, shape[1]), "bias": made(94, shape[1])}
        group[case] = {"offset": offset}
        for form, parameters in (("both", affine), ("plain", {})):
            running = {
                "running_mean": torch.zeros(shape[1]).double(), "running_var": torch.ones(shape[1]).double()}

            def layer(x, training=True, running=running, **parameters):
                return functional.batch_norm(x, **running, **parameters, training=training)

            group[case][form] = with_gradients(layer, 95, x=x, **parameters) | running
            group[case][form]["evaluated"] = layer(x, training=False, **parameters)
    return group


def group_norm():
    """x [batch, channels, ...] = made(92) + offset, weight = made(93), bias = made(94), dy = made(95);
    `both` has weight and bias, `plain` neither. Those of `instance` have a group for each channel."""
    cases = {  # shape of x, groups, offset, epsilon
        "lines": ((2, 6, 5), 3, 0, 1e-5), "images": ((3, 8, 3, 4), 2, 0, 0.1),
        "one": ((2, 4, 3, 3), 1, 0, 1e-5), "volumes": ((1, 4, 3, 2, 5), 2, 10000, 1e-5)}
    group = {"group": {}, "instance": {}}
    for name, (shape, groups, offset, epsilon) in cases.items():
        x, affine = made(92, *shape) + offset, {"weight": made(93, shape[1]), "bias": made(94, shape[1])}

        def group_norm(x, **parameters):
            return functional.group_norm(x, groups, **parameters, eps=epsilon)

        def instance_norm(x, **parameters):
            return functional.instance_norm(x, **parameters, eps=epsilon)

        for kind, function in (("group", group_norm), ("instance", instance_norm)):
            group[kind][name] = {
                "offset": offset,
                "epsilon": epsilon,
                "groups": groups,
                "both": with_gradients(function, 95, x=x, **affine),
                "plain": with_gradients(function, 95, x=x),
            }
    return group


def convolutions():
    """x = made(80), weight = made(81), bias = made(82), dy = made(83)."""
    cases = {  # x, weight, whether there is a bias, convolution
        "text": ((2, 6, 9), (4, 3, 3), True, lambda x, weight, bias: functional.conv1d(
            x, weight, bias, stride=2, padding=2, dilation=2, groups=2)),
        "picture": ((2, 3, 7, 5), (4, 3, 3, 2), True, lambda x, weight, bias: functional.conv2d(
            x, weight, bias, stride=(2, 1), padding=(1, 2), dilation=(1, 3))),
        "kept": ((2, 3, 4, 5), (2, 3, 4, 3), True, lambda x, weight, bias: functional.conv2d(
            x, weight, bias, padding="same", dilation=(1, 2))),
        # Padding 0 above, 3 below, 2 left, 1 right.
        "askew": ((1, 2, 4, 3), (3, 2, 2, 3), True, lambda x, weight, bias: functional.conv2d(
            functional.pad(x, (2, 1, 0, 3)), weight, bias, stride=3)),
        "depthwise": ((2, 3, 4, 4), (6, 1, 3, 3), False, lambda x, weight: functional.conv2d(
            x, weight, padding=1, groups=3)),
        "body": ((1, 2, 4, 3, 4), (3, 2, 2, 3, 2), True, lambda x, weight, bias: functional.conv3d(
            x, weight, bias, stride=(2, 1, 2), padding=(1, 0, 1), dilation=(1, 1, 2))),
    }
    group = {}
    for name, (x, weight, has_bias, layer) in cases.items():
        bias = {"bias": made(82, weight[0])} if has_bias else {}
        group[name] = with_gradients(layer, 83, x=made(80, *x), weight=made(81, *weight), **bias)
    return group


def transposed_convolutions():
    """x = coarse(80), weight = coarse(81), bias = coarse(82), dy = coarse(83)."""
    cases = {  # x, weight, groups, whether there is a bias, convolution
        "text": ((2, 6, 5), (6, 2, 3), 2, True, lambda x, weight, bias: functional.conv_transpose1d(
            x, weight, bias, stride=2, padding=1, dilation=2, groups=2)),
        "picture": ((2, 3, 4, 3), (3, 4, 3, 2), 1, True, lambda x, weight, bias: functional.conv_transpose2d(
            x, weight, bias, stride=(2, 1), padding=(1, 0), output_padding=(1, 0), dilation=(1, 2))),
        "doubled": ((2, 4, 3, 3), (4, 3, 2, 2), 1, False, lambda x, weight: functional.conv_transpose2d(
            x, weight, stride=2)),
        "gaps": ((1, 2, 3, 2), (2, 3, 2, 2), 1, True, lambda x, weight, bias: functional.conv_transpose2d(
            x, weight, bias, stride=3, output_padding=2)),
        "body": ((1, 3, 2, 3, 2), (3, 2, 2, 3, 2), 1, True, lambda x, weight, bias: functional.conv_transpose3d(
            x, weight, bias, stride=(2, 1, 2), padding=(0, 1, 1))),
    }
    group = {}
    for name, (x, weight, groups, has_bias, layer) in cases.items():
        bias = {"bias": coarse(82, weight[1] * groups)} if has_bias else {}
        group[name] = with_gradients(layer, 83, coarse, x=coarse(80, *x), weight=coarse(81, *weight), **bias)
    return group


def pooling():
    """x = floor(3 made(90)), so that many maxima are equal, and dy = made(91). The number in a name is
    that of the axes; in own2 and mean3 padding is not counted."""
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
        "max_ceil1": lambda x: functional.max_pool1d(x, 3, 3, ceil_mode=True),
        "max_ceil2": lambda x: functional.max_pool2d(x, 2, (4, 2), 1, ceil_mode=True),
        "mean_ceil2": lambda x: functional.avg_pool2d(x, 4, 3, ceil_mode=True),
        "own_ceil2": lambda x: functional.avg_pool2d(
            x, (4, 2), 2, 1, ceil_mode=True, count_include_pad=False),
        "max_global1": lambda x: functional.adaptive_max_pool1d(x, 1),
        "max_global2": lambda x: functional.adaptive_max_pool2d(x, 1),
        "max_global3": lambda x: functional.adaptive_max_pool3d(x, 1),
    }
    return {
        name: with_gradients(function, 91, x=torch.floor(3 * made(90, *shapes[int(name[-1])])))
        for name, function in cases.items()
    }


def upsampling():
    """x = made(90), dy = made(91); the number in a name is that of the axes."""
    cases = {"nearest1": ((2, 2, 5), 3), "nearest2": ((2, 3, 5, 3), (2, 3)), "nearest3": ((1, 2, 5, 2, 3), (2, 1, 2))}
    return {
        name: with_gradients(
            lambda x, scale=scale: functional.interpolate(x, scale_factor=scale, mode="nearest"), 91,
            x=made(90, *shape))
        for name, (shape, scale) in cases.items()
    }


def merges():
    """Two values made of one x [2, 5, 5, 3] = made(90), and one of them; dy = made(91)."""
    cases = {
        "times": lambda x: x * torch.tanh(x),
        "silu_times": lambda x: functional.silu(torch.tanh(x)) * x,
        "sigmoid_times": lambda x: torch.sigmoid(x) * torch.tanh(x),
        "scale": lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)),
        "gelu_scale": lambda x: torch.tanh(x) * functional.gelu(x.mean((2, 3), keepdim=True)),
        "channels": lambda x: torch.cat([x, torch.tanh(x), torch.sigmoid(x)], 1),
        "rows": lambda x: torch.cat([torch.tanh(x), x[:, :, ::2]], 2),
    }
    return {name: with_gradients(function, 91, x=made(90, 2, 5, 5, 3)) for name, function in cases.items()}


def initialisers():
    """Bounds of the uniform and standard deviations of the normal initialisers, as PyTorch passes them
    to the functions that draw. Kaiming: fan-in, gain of ReLU; Xavier: gain 1. The defaults are those of
    torch.nn.Linear, Conv1d, 2d and 3d, for a weight and for a bias."""
    torch.manual_seed(1)
    init = torch.nn.init

    def begins(layer, sizes):
        layers = []
        weight, bias = recorded("uniform_", lambda: layers.append(layer()))
        w = layers[0].weight.detach()
        rules = {
            "kaiming_uniform": lambda: init.kaiming_uniform_(w, nonlinearity="relu"),
            "kaiming_normal": lambda: init.kaiming_normal_(w, nonlinearity="relu"),
            "xavier_uniform": lambda: init.xavier_uniform_(w),
            "xavier_normal": lambda: init.xavier_normal_(w),
        }
        found = sizes | {"default_weight": weight, "default_bias": bias}
        for name, rule in rules.items():
            (found[name],) = recorded(name[name.index("_") + 1:] + "_", rule)
        return found

    shapes = ((512, 784), (10, 512), (608, 1024), (96, 33), (256, 64))
    group = {"linear": {
        number: begins(lambda: torch.nn.Linear(inputs, outputs), {"in": inputs, "out": outputs})
        for number, (outputs, inputs) in enumerate(shapes)
    }}
    for name, module, inputs, outputs, groups, kernel in (
        ("conv1d", torch.nn.Conv1d, 24, 96, 4, (7,)), ("conv2d", torch.nn.Conv2d, 16, 64, 1, (3, 5)),
        ("conv3d", torch.nn.Conv3d, 12, 36, 6, (3, 1, 5)),
        ("transposed2d", torch.nn.ConvTranspose2d, 16, 64, 2, (3, 5)),
    ):
        sizes = {"in": inputs, "out": outputs, "groups": groups}
        group[name] = begins(lambda: module(inputs, outputs, kernel, groups=groups), sizes)
    return group


# Training.


def with_gradient(function, prediction):
    loss = function(prediction.requires_grad_())
    loss.backward()
    return {"loss": loss, "gradient": prediction.grad}


def reduced(function, prediction):
    """The loss function(prediction, reduction=...) by both reductions."""
    return {
        kind: with_gradient(lambda p: function(p, reduction=kind), prediction.clone()) for kind in ("mean", "sum")}


def losses():
    """Mean squared error: prediction [4, 5] = made(5), target [4, 5] = made(6), mean over all elements.
    Cross-entropy: mean over rows, label of row r = made_label(r, classes); logits
      plain    [6, 10]: 4 made(7)
      shifted  [6, 10]: 4 made(7), +10000 on even rows, -10000 on odd ones
      wide     [6, 10]: 10000 made(7), so that most probabilities are 0
      sequence [2, 3, 5] (batch, sequence, class), flattened to [6, 5]: 4 made(8)
    Names that end in _smooth have label smoothing 0.1."""

    shift = torch.tensor([1e4, -1e4] * 3, dtype=torch.float64).reshape(6, 1)
    cases = {
        "plain": 4 * made(7, 6, 10),
        "shifted": 4 * made(7, 6, 10) + shift,
        "wide": 10000 * made(7, 6, 10),
        "sequence": 4 * made(8, 2, 3, 5).flatten(0, 1),
    }
    group = {"mean_squared": with_gradient(lambda p: functional.mse_loss(p, made(6, 4, 5)), made(5, 4, 5))}
    for name, logits in cases.items():
        for smoothing, suffix in ((0.0, ""), (0.1, "_smooth")):
            group[name + suffix] = with_gradient(
                lambda z: functional.cross_entropy(z, made_labels(*z.shape), label_smoothing=smoothing),
                logits.clone())
    return group


def element_losses():
    """Prediction 3 made(5), or 2 made(5) for huber, smooth_l1 and l1, whose differences lie on both sides of
    0.75; target made(6), and (1 + made(6)) / 2 for binary cross-entropy; [4, 5], but image [2, 3, 2, 2].
    Positive weights of the classes, axis 1: 2 + made(96)."""
    prediction, near, target = 3 * made(5, 4, 5), 2 * made(5, 4, 5), made(6, 4, 5)
    image, image_target = 3 * made(5, 2, 3, 2, 2), (1 + made(6, 2, 3, 2, 2)) / 2

    def binary(target, weights):
        return lambda p, reduction: functional.binary_cross_entropy_with_logits(
            p, target, pos_weight=weights, reduction=reduction)

    return {
        "squared": reduced(lambda p, **o: functional.mse_loss(p, target, **o), prediction),
        "huber": reduced(lambda p, **o: functional.huber_loss(p, target, delta=0.75, **o), near),
        "smooth_l1": reduced(lambda p, **o: functional.smooth_l1_loss(p, target, beta=0.75, **o), near),
        "l1": reduced(lambda p, **o: functional.smooth_l1_loss(p, target, beta=0.0, **o), near),
        "binary": reduced(binary((1 + target) / 2, None), prediction),
        "positive": reduced(binary((1 + target) / 2, 2 + made(96, 5)), prediction),
        "wide": reduced(binary((1 + target) / 2, None), 1000 * prediction),
        "image": reduced(binary(image_target, 2 + made(96, 3, 1, 1)), image),
    }


def label_losses():
    """Cross-entropy of the logits 4 made(7) [6, 10], or 4 made(8) [2, 3, 5] (batch, sequence, class)
    flattened to [6, 5]; negative log-likelihood (nll) of the logarithm of their softmax. The label of row
    r is made_label(r, classes). Names with _ignored ignore rows 1 and 4, with _weighted classes have the
    weights 1.5 + made(97), with _smooth label smoothing is 0.1."""
    group = {}
    for shape, logits in (("plain", 4 * made(7, 6, 10)), ("sequence", 4 * made(8, 2, 3, 5).flatten(0, 1))):
        for ignored in ("", "_ignored"):
            for weighted in ("", "_weighted"):
                labels = made_labels(*logits.shape)
                if ignored:
                    labels[[1, 4]] = -100
                options = {"weight": 1.5 + made(97, logits.shape[1])} if weighted else {}
                case = shape + ignored + weighted
                group[f"nll_{case}"] = reduced(
                    lambda y, **o: functional.nll_loss(y, labels, **options, **o), logits.log_softmax(1))
                for smoothing, suffix in ((0.0, ""), (0.1, "_smooth")):
                    group[f"entropy_{case}{suffix}"] = reduced(lambda z, **o: functional.cross_entropy(
                        z, labels, **options, label_smoothing=smoothing, **o), logits)
    return group


# Numbers that are not finite.

INF, NAN = float("inf"), float("nan")
FAR = ((-INF, 1, 2), (1, 1, -INF), (-INF, -INF, 0.5), (-100, 0, -INF), (INF, 0, -INF), (INF, INF, 1), (NAN, 0, -INF), (-INF, -INF, -INF))


def far_softmax():
    """Over the last axis of x, for dy = made(91)."""
    x = torch.tensor(FAR, dtype=torch.float64)
    return {"x": x} | with_gradients(lambda x: functional.softmax(x, -1), 91, x=x)


def far_cross_entropy():
    """The loss of each row of logits x, and its gradient; the label of all rows is that of the name. Names
    that end in _smooth have label smoothing 0.1."""
    x = torch.tensor(FAR, dtype=torch.float64)
    group = {"x": x}
    for label in range(3):
        for smoothing, suffix in ((0.0, ""), (0.1, "_smooth")):
            logits = x.clone().requires_grad_()
            losses = functional.cross_entropy(
                logits, torch.full((len(FAR),), label), label_smoothing=smoothing, reduction="none")
            losses.sum().backward()
            group[f"{label}{suffix}"] = {"losses": losses, "gradient": logits.grad}
    return group


class Lion(torch.optim.Optimizer):
    """Program 1 of Chen et al. 2023, which PyTorch does not have."""

    def __init__(self, parameters, **options):
        super().__init__(parameters, options)

    def step(self):
        for group in self.param_groups:
            (beta1, beta2), rate = group["betas"], group["lr"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                update = torch.sign(beta1 * m + (1 - beta1) * p.grad)
                with torch.no_grad():
                    p -= rate * (update + group["weight_decay"] * p)
                m.copy_(beta2 * m + (1 - beta2) * p.grad)


def optimisers():
    """Six parameters over ten steps: start made(9, i), gradient of step t (from 0) made(10, 6 t + i).
    values [10, 6] are the parameters after each step. Weight decay of AdamW and Lion is decoupled, that of
    the others added to the gradient; the first of each kind but SGD has the defaults."""

    def run(make):
        parameter = torch.nn.Parameter(made(9, 6))
        optimiser = make([parameter])
        steps = []
        for gradient in made(10, 10, 6):
            parameter.grad = gradient.clone()
            optimiser.step()
            steps.append(parameter.detach().clone())
        return {"values": torch.stack(steps)}

    group = {"sgd": {}, "adamw": {}, "adam": {}, "rmsprop": {}, "lion": {}}
    for rate, momentum, decay, nesterov, dampening in (
        (0.1, 0.0, 0.0, False, 0.0), (0.1, 0.9, 0.0, False, 0.0), (0.1, 0.9, 0.0, True, 0.0),
        (0.1, 0.0, 0.01, False, 0.0), (0.1, 0.9, 0.01, False, 0.0), (0.1, 0.9, 0.01, True, 0.0),
        (0.1, 0.9, 0.0, False, 0.5), (0.1, 0.8, 0.01, False, 1.0),
    ):
        options = {"momentum": momentum, "weight_decay": decay, "nesterov": nesterov, "dampening": dampening}
        steps = run(lambda p: torch.optim.SGD(p, lr=rate, **options))
        group["sgd"][len(group["sgd"])] = {"rate": rate} | options | steps

    def defaults(kind):
        return kind([torch.nn.Parameter(made(9, 6))]).defaults

    for kind, name, default_decay in ((torch.optim.AdamW, "adamw", 0.01), (torch.optim.Adam, "adam", 0.0)):
        default = defaults(kind)
        assert (default["lr"], default["betas"], default["eps"], default["weight_decay"]) == (
            1e-3, (0.9, 0.999), 1e-8, default_decay)
        for rate, beta1, beta2, epsilon, decay in (
            (1e-3, 0.9, 0.999, 1e-8, default_decay), (0.05, 0.8, 0.95, 1e-2, 0.1), (0.01, 0.9, 0.999, 1e-8, 0.0),
        ):
            steps = run(lambda p: kind(
                p, lr=rate, betas=(beta1, beta2), eps=epsilon, weight_decay=decay))
            group[name][len(group[name])] = {
                "rate": rate, "beta1": beta1, "beta2": beta2, "epsilon": epsilon, "weight_decay": decay} | steps

    default = defaults(torch.optim.RMSprop)
    names = ("lr", "alpha", "eps", "momentum", "centered", "weight_decay")
    assert [default[name] for name in names] == [1e-2, 0.99, 1e-8, 0, False, 0]
    for values in (
        (1e-2, 0.99, 1e-8, 0, False, 0), (0.05, 0.9, 1e-3, 0, True, 0.1),
        (0.01, 0.9, 1e-2, 0.8, False, 0.1), (0.02, 0.95, 1e-2, 0.9, True, 0),
    ):
        options = dict(zip(names, values))
        steps = run(lambda p: torch.optim.RMSprop(p, **options))
        group["rmsprop"][len(group["rmsprop"])] = options | steps

    for rate, beta1, beta2, decay in ((1e-4, 0.9, 0.99, 0), (0.02, 0.8, 0.95, 0.1)):
        steps = run(lambda p: Lion(p, lr=rate, betas=(beta1, beta2), weight_decay=decay))
        group["lion"][len(group["lion"])] = {
            "rate": rate, "beta1": beta1, "beta2": beta2, "weight_decay": decay} | steps
    return group


def clipping():
    """Norms of four gradients together: 3 made(60), 3 made(61), 3 made(62), 3 made(63) of the shapes
    [13, 9], [13], [10, 13], [10], as torch.nn.utils.clip_grad_norm_ gives and clips them; the clipped
    ones are the first and the last of the four.
    Then five steps of SGD (learning rate 0.5) on one linear layer, weight [5, 7] = made(64), bias [5] =
    made(65), x [6, 7] = made(66), target [6, 5] = made(67), mean squared error, the norm clipped to
    0.25: norms before clipping, losses, and weight and bias after the last step."""
    group = {}
    shapes = ((13, 9), (13,), (10, 13), (10,))
    for kind, name in ((2.0, "euclidean"), (float("inf"), "infinity")):
        tensors = [torch.nn.Parameter(torch.zeros(s, dtype=torch.float64)) for s in shapes]
        for i, tensor in enumerate(tensors):
            tensor.grad = 3 * made(60 + i, *shapes[i])
        norm = torch.nn.utils.clip_grad_norm_(tensors, 1.5, norm_type=kind, error_if_nonfinite=True)
        group[name] = {"norm": norm, "0.weight": tensors[0].grad, "2.bias": tensors[3].grad}
    weight, bias = (torch.nn.Parameter(made(64, 5, 7)), torch.nn.Parameter(made(65, 5)))
    optimiser = torch.optim.SGD([weight, bias], lr=0.5)
    norms, all_losses = [], []
    for _ in range(5):
        optimiser.zero_grad()
        loss = functional.mse_loss(functional.linear(made(66, 6, 7), weight, bias), made(67, 6, 5))
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_([weight, bias], 0.25))
        all_losses.append(loss.detach())
        optimiser.step()
    group["steps"] = {
        "norms": torch.stack(norms), "losses": torch.stack(all_losses), "weight": weight, "bias": bias}
    return group


def schedules():
    """Learning rates of the steps 0, 1, ..., all from a rate of 0.4.
    step: StepLR(step_size=7, gamma=0.3).  cosine: CosineAnnealingLR(T_max=20, eta_min=0.01).
    Names that begin in warm_: SequentialLR of LinearLR(start_factor=0.1, total_iters=5) and, from
    step 5 on, a constant rate, that StepLR or that CosineAnnealingLR."""
    rates = torch.optim.lr_scheduler

    def run(make, count):
        optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4)
        schedule = make(optimiser)
        found = []
        for _ in range(count):
            found.append(optimiser.param_groups[0]["lr"])
            optimiser.step()
            schedule.step()
        return found

    kinds = {
        "constant": lambda o: rates.ConstantLR(o, factor=1.0, total_iters=1),
        "step": lambda o: rates.StepLR(o, step_size=7, gamma=0.3),
        "cosine": lambda o: rates.CosineAnnealingLR(o, T_max=20, eta_min=0.01),
    }
    group = {name: run(make, 21) for name, make in kinds.items() if name != "constant"}
    for name, make in kinds.items():
        group[f"warm_{name}"] = run(lambda o: rates.SequentialLR(
            o, [rates.LinearLR(o, start_factor=0.1, total_iters=5), make(o)], milestones=[5]), 26)
    return group


def mixed_precision():
    """Four steps of SGD (learning rate 0.1, momentum 0.9) on linear, ReLU, linear with cross-entropy, with
    parameters, their gradients and moments in float and everything else in bfloat16 or float16.
    x [6, 9] = made(50), W1 [13, 9] = made(51) / 2, b1 [13] = made(52) / 2, W2 [5, 13] = made(53) / 2,
    b2 [5] = made(54) / 2, label of row r = made_label(r, 5). Each product is a sum in double with the
    bias in it, rounded to float and then to the narrow dtype, of which copies of the parameters are too;
    the loss is computed in float from the narrow logits. The gradient of the loss is multiplied by the
    scale (1 and 1024) in float, then rounded; gradients of parameters are rounded to the narrow dtype,
    then divided by the scale in float.
    scales: those that torch.amp.GradScaler has for its steps 0, 1, ... with an initial scale of 8,
    growth 2, backoff 0.5 and an interval of 3; steps 4, 5 and 10 overflow."""
    group = {}
    for dtype, name, scale in ((torch.bfloat16, "bf16", 1.0), (torch.float16, "fp16", 1024.0)):
        def narrow(tensor, dtype=dtype):
            return tensor.to(torch.float32).to(dtype).to(torch.float64)

        x = narrow(made(50, 6, 9))
        labels = made_labels(6, 5)
        masters = {"0.weight": made(51, 13, 9), "0.bias": made(52, 13), "2.weight": made(53, 5, 13),
                   "2.bias": made(54, 5)}
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
            gradients = (dh.T @ x, dh.sum(0), dy.T @ hidden, dy.sum(0))
            for master, gradient in zip(masters.values(), gradients):
                master.grad = narrow(gradient).to(torch.float32) / scale
            optimiser.step()
        group[name] = {"losses": torch.stack(all_losses)} | masters
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=8.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=3)
    parameter = torch.nn.Parameter(torch.ones(1))
    optimiser = torch.optim.SGD([parameter], lr=0.1)
    group["scales"] = []
    for step in range(14):
        group["scales"].append(scaler.get_scale())
        optimiser.zero_grad()
        scaler.scale(parameter.sum()).backward()
        if step in (4, 5, 10):
            parameter.grad.fill_(float("inf"))
        before = parameter.item()
        scaler.step(optimiser)
        assert (parameter.item() == before) == (step in (4, 5, 10))
        scaler.update()
    return group


def metrics():
    """In how many of 40 rows the label, made_label(row, 10), is among the k largest of the logits
    [40, 10] = made(72); for k = 1 to 10."""
    logits, labels = made(72, 40, 10), made_labels(40, 10)
    assert all(row.unique().numel() == 10 for row in logits)
    counts = [(logits.topk(k).indices == labels[:, None]).any(1).sum() for k in range(1, 11)]
    return {"top_k": torch.stack(counts)}


# Networks whose parameters have the names that they have in the library.


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class Join(nn.Sequential):
    def __init__(self, operation, *branches):
        super().__init__(*branches)
        self.operation = operation

    def forward(self, x):
        return self.operation([branch(x) for branch in self])


def conv(inputs, outputs, size=3, stride=1):
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2)


def resnet_block(inputs, outputs, stride=1):
    return (
        conv(inputs, outputs, stride=stride), nn.BatchNorm2d(outputs), nn.ReLU(),
        conv(outputs, outputs), nn.BatchNorm2d(outputs))


def wider(inputs, outputs):
    """A block of half the extents, with a projection on the short way."""
    short = nn.Sequential(conv(inputs, outputs, 1, stride=2), nn.BatchNorm2d(outputs))
    return Join(sum, short, nn.Sequential(*resnet_block(inputs, outputs, stride=2)))


def resnet_network():
    return nn.Sequential(
        conv(3, 8), nn.BatchNorm2d(8), nn.ReLU(), Residual(*resnet_block(8, 8)), nn.ReLU(),
        wider(8, 16), nn.ReLU(), wider(16, 32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def unet_network():
    def concat(parts):
        return torch.cat(parts, 1)

    def squeezed(channels):
        return Join(
            lambda parts: parts[0] * torch.sigmoid(parts[1]), nn.Identity(), nn.Sequential(
                nn.AdaptiveAvgPool2d(1), conv(channels, 2, 1), nn.ReLU(), conv(2, channels, 1)))

    inception = Join(concat, conv(8, 5, 1), conv(8, 4), nn.Sequential(conv(8, 3, 1), nn.ReLU(), conv(3, 7, 5)))
    deep = nn.Sequential(
        nn.MaxPool2d(2), inception, nn.BatchNorm2d(16), nn.ReLU(), squeezed(16), conv(16, 8),
        nn.Upsample(scale_factor=2))
    return nn.Sequential(
        conv(3, 8), nn.BatchNorm2d(8), nn.ReLU(), Join(concat, nn.Identity(), deep), conv(16, 8),
        nn.BatchNorm2d(8), nn.ReLU(), conv(8, 2, 1))


class TwoHeads(nn.Sequential):
    """A trunk, and two heads that read what it gives."""

    def forward(self, x):
        trunk, first, second = self
        x = trunk(x)
        return first(x), second(x)


class TwoInputs(nn.Sequential):
    """A branch for each input, and a head on what both give."""

    def forward(self, x, y):
        first, second, _, head = self
        return head(torch.cat((first(x), second(y)), 1))


def two_heads_network():
    trunk = nn.Sequential(
        conv(3, 8), nn.BatchNorm2d(8), nn.ReLU(), Residual(*resnet_block(8, 8)), nn.ReLU())
    classes = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    return TwoHeads(trunk, classes, nn.Sequential(conv(8, 4), nn.ReLU(), conv(4, 2, 1)))


def two_inputs_network():
    image = nn.Sequential(
        conv(3, 8, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    record = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 7))
    return TwoInputs(image, record, nn.Identity(), nn.Linear(15, 10))


def numbered(name, tensors):
    """Tensors by the names "name", "name.1", "name.2" and so on."""
    return {name + (f".{i}" if i > 0 else ""): tensor for i, tensor in enumerate(tensors)}


def trained(network, loss, *more_inputs):
    """The outputs for x [3, 3, 16, 16] = made(10), and more inputs of these shapes, number k of them =
    made(10 + 1000 k), and the gradients for dy = made(20 + 1000 k) of output k. Then the losses of 20
    steps of SGD with learning rate 0.01 and momentum 0.9. Parameter i = made(30 + i)."""
    network = network.double()
    with torch.no_grad():
        for i, parameter in enumerate(network.parameters()):
            parameter.copy_(made(30 + i, *parameter.shape))
    xs = [made(10 + 1000 * k, *shape).requires_grad_() for k, shape in enumerate(((3, 3, 16, 16), *more_inputs))]
    ys = network(*xs)
    ys = ys if isinstance(ys, tuple) else (ys,)
    torch.autograd.backward(ys, [made(20 + 1000 * k, *y.shape) for k, y in enumerate(ys)])
    step = numbered("output 0", ys) | numbered("input gradient 0", [x.grad.clone() for x in xs])
    step |= {f"{name} gradient": p.grad.clone() for name, p in network.named_parameters()}
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(20):
        optimiser.zero_grad()
        losses.append(loss(network(*[x.detach() for x in xs])))
        losses[-1].backward()
        optimiser.step()
    return {"step": step, "losses": torch.stack(losses)}


def resnet():
    """As `trained` says, with the mean cross-entropy for labels made_labels(3, 10)."""
    return trained(resnet_network(), lambda y: functional.cross_entropy(y, made_labels(3, 10)))


def unet():
    """As `trained` says, with the mean of (y - made(21))^2."""
    return trained(unet_network(), lambda y: functional.mse_loss(y, made(21, *y.shape)))


def two_heads():
    """As `trained` says, with the mean cross-entropy of the first output for labels made_labels(3, 10)
    and half the mean of (y - made(21))^2 of the second."""

    def loss(ys):
        classes, mask = ys
        return functional.cross_entropy(classes, made_labels(3, 10)) + 0.5 * functional.mse_loss(
            mask, made(21, *mask.shape))

    return trained(two_heads_network(), loss)


def two_inputs():
    """As `trained` says, with a second input [3, 6] and the loss of `resnet`."""
    return trained(
        two_inputs_network(), lambda y: functional.cross_entropy(y, made_labels(3, 10)), (3, 6))


# The example that compares a split layer with the whole one.


def step():
    """One step of SGD on one linear layer, the whole of it on one rank: X [32, 1024] = made(11),
    W [608, 1024] = made(12) / 32, b [608] = made(13), target [32, 608] = made(14), y = X W^T + b,
    loss = mean over all elements of (y - target)^2, learning rate 0.3. W and b are those after the
    step. Of the large tensors: element sample_index(k, size) for k below 500."""
    x = made(11, 32, 1024).requires_grad_()
    w = (made(12, 608, 1024) / 32).requires_grad_()
    b = made(13, 608).requires_grad_()
    loss = functional.mse_loss(functional.linear(x, w, b), made(14, 32, 608))
    loss.backward()
    torch.optim.SGD([w, b], lr=0.3).step()
    return {
        "loss": loss, "W": sample(w), "b": b, "dW": sample(w.grad), "db": b.grad, "dX": sample(x.grad)}


if __name__ == "__main__":
    for file, groups in {
        "layers": (activations, parametric_relu, softmax, linear, norms, batch_norm, group_norm, convolutions,
            transposed_convolutions, pooling, upsampling, merges, initialisers),
        "losses": (element_losses, label_losses),
        "far": (far_softmax, far_cross_entropy),
        "training": (losses, optimisers, clipping, schedules, mixed_precision, metrics),
        "networks": (resnet, unet, two_heads, two_inputs),
        "unsharded": (step,),
    }.items():
        tensors = dict(flat({group.__name__: group() for group in groups}))
        save_file(tensors, HERE / "values" / f"{file}.safetensors", {"made_with": f"PyTorch {torch.__version__}"})
