#pragma once
// Checks for your own layers, losses and communicators, for any test framework or none. Each
// returns a report, whose `require()` throws a check_error with a sentence for each error.
//
//   check_layer(layer, shape)               compares many ranks with one, messages with the plan,
//                                           and backward with forward
//   check_gradients(ranks, layer, shape)    only the last of these
//   check_loss<Layouts...>(loss, shape, target)     the same for a loss, and two batches of a step
//   check_redistribution<From, To>(ranks, shapes)   the laws of redistributions
//   check_all_redistributions(ranks, shapes)        for every pair of layouts, for a communicator
//   difference_from_plan(part, planned, counted)    compares the messages of a run with its plan
//
// A layer or loss that passes gives the same numbers at any number of ranks, like the library's
// own.

#include "shardwise/testing/calls.hpp"
#include "shardwise/testing/laws.hpp"
#include "shardwise/testing/layer_check.hpp"
#include "shardwise/testing/loss_check.hpp"
#include "shardwise/testing/many_against_one.hpp"
#include "shardwise/testing/report.hpp"
#include "shardwise/testing/shapes.hpp"
#include "shardwise/train/gradient_check.hpp"
