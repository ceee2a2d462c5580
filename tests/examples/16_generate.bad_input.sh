#!/bin/sh
# What example 16 says to bad input.
# Usage: 16_generate.bad_input.sh PROGRAM
program=$1
. "$(dirname "$0")/bad_input.sh"
folders=$(dirname "$0")/../witness/values/hugging_face

refuses 'not expected: --no-such-option' --no-such-option --model "$folders/llama" --ids 1
refuses '--model is required' --ids 1
refuses '--ids is required' --model "$folders/llama"
refuses '--tokens: Value 0 not in range' --model "$folders/llama" --ids 1 --tokens 0
refuses '--dtype: half not in {bf16,float}' --model "$folders/llama" --ids 1 --dtype half
for ids in 1,,2 1, ,1 1x '' 99999999999; do
  refuses "--ids $ids is no list of token ids; write it like 1,5,9" --model "$folders/llama" --ids "$ids"
done
refuses 'nowhere/config.json: cannot be opened' --model "$work/nowhere" -s 3 --ids 1
for family in bert mixtral; do
  refuses "$family/config.json: model_type is \"$family\", but this program has gpt2, llama," \
    --model "$folders/$family" -s 3 --ids 1
done
mkdir "$work/no_weights"
cp "$folders/llama/config.json" "$work/no_weights"
refuses 'no_weights/model.safetensors' --model "$work/no_weights" -s 3 --ids 1
cp "$folders/qwen3/model.safetensors" "$work/no_weights"
three='s/"num_hidden_layers": 2/"num_hidden_layers": 3/'
sed "$three" "$folders/qwen3/config.json" >"$work/no_weights/config.json"
refuses 'for each of num_hidden_layers' --model "$work/no_weights" -s 3 --ids 1
tr -d '\n' <"$folders/qwen3/config.json" | sed "$three; s/\"layer_types\": *\[[^]]*\],//" \
  >"$work/no_weights/config.json"
refuses 'model.layers.2.self_attn.q_proj.weight' --model "$work/no_weights" -s 3 --ids 1
refuses 'token id 13 at element 0 of the input is not in the table' --model "$folders/llama" -s 3 --ids 13,1
refuses 'the table has 11 positions' --model "$folders/gpt2" -s 3 --ids 1,2 --tokens 11
refuses 'the temperature is -1' --model "$folders/llama" -s 3 --ids 1 --temperature=-1

[ "$failures" -eq 0 ]
