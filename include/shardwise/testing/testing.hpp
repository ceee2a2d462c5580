#pragma once
// Checks for layers and communicators of your own, for any test framework or none. Each gives a
// report, whose `require()` throws a check_error with a sentence for each thing that is wrong.
//
//   check_layer(layer, shape)               many ranks against one, messages against the plan, and
//                                           backward against forward
//   check_gradients(ranks, layer, shape)    the last of these alone
//   check_redistribution<From, To>(ranks, shapes)   the adjoint law and its neighbours
//   check_all_redistributions(ranks, shapes)        for every pair of layouts: for a communicator
//   difference_from_plan(part, planned, counted)    what a run has sent against its plan
//
// A layer that passes shards as the library's own do: the same numbers at any number of ranks.

#include "shardwise/testing/calls.hpp"
#include "shardwise/testing/laws.hpp"
#include "shardwise/testing/layer_check.hpp"
#include "shardwise/testing/report.hpp"
#include "shardwise/testing/shapes.hpp"
#include "shardwise/train/gradient_check.hpp"
