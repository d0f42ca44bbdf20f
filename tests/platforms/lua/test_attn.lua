-- attn.lua: errors come out, and nothing is left behind. Run by tests/platforms/languages.sh.
package.path = "examples/lua/?.lua;" .. package.path
local attn = require "attn"
local model = attn.open(arg[1])

local function fails(text, ...)
    local done, message = pcall(...)
    assert(not done and tostring(message):find(text, 1, true), tostring(message))
end

assert(model:generate("Once upon a time", {max_tokens = 5}) == ", there was a little")
assert(model:generate("Once\0upon", {max_tokens = 5}) ~= model:generate("Once", {max_tokens = 5})) -- a NUL cuts nothing
assert(model:logits("Once\0upon")[11] ~= model:logits("Once")[11])
fails("mine", model.generate, model, "Once", nil, function() error("mine", 0) end)
fails("no activation is called", model.logits, model, "Once", {{name = "nothing"}})
fails("stop_string", model.generate, model, "Once", {stop_string = "."}) -- no field of attn_generate_desc
fails("temprature", model.generate, model, "Once", {sampling = {temprature = 1}}) -- no field of attn_sampler_desc
fails("temperature", model.generate, model, "Once", {temperature = 1}) -- a field of it, and not of attn_generate_desc
assert(model:generate("Once", {max_tokens = 9, sampling = {temperature = 2, seed = 3}}) ~= model:generate("Once", {max_tokens = 9}))
fails("position", model.logits, model, "Once", {{name = "blocks.2.attn.hook_z", position = 3}}) -- no field of attn_edit
fails("no tokens", model.logits, model, "")
fails("the prompt is empty", model.generate, model, "")
fails("/no/such.attn", attn.open, "/no/such.attn")
fails("a path or name has a NUL", attn.open, arg[1] .. "\0")
fails("a path or name has a NUL", model.logits, model, "Once", {{name = "blocks.2.attn.hook_z\0", first_head = 3, n_heads = 1}})
fails("no name", model.logits, model, "Once", {{first_head = 3}})
assert(model:with_session(function() return nil end) == nil) -- a function without a result succeeds
assert(model:with_session(function() return false end) == false)
fails("mine", model.with_session, model, function() error("mine", 0) end)
local patched = model:query("patch", {"Tom was a boy. He", "Tom was a girl. He"}, {by = "heads", names = {"attn.hook_z", "attn.hook_q"}})
assert(#patched.heads.answer == 48 and patched.heads.head[24] == 5 and patched.heads.activation[25] == "attn.hook_q")
assert(patched.facts.gap_is_small[1] == true and patched.notes[1]:find("a gap of", 1, true))
local tokens = model:query("tokens", {"Once upon"}, {top = 0}).tokens
assert(tokens.token[2] == " upon" and tokens.loss[1] ~= tokens.loss[1] and tokens.loss[2] > 0)
fails("by: there is no", model.query, model, "patch", {"a", "b"}, {by = "head"})
fails("tokens takes no further word", model.query, model, "tokens", {"a", "b"})
local first = model:logits("Once upon a time")
for _ = 1, 1500 do -- more callbacks than LuaJIT has room for, if they were not freed
    assert(model:generate("Once", {max_tokens = 1}) ~= "")
end
assert(first[11] == model:logits("Once upon a time")[11])
print "passed"
