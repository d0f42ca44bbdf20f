-- attn.h from LuaJIT, whose FFI reads C: the declarations are those of attn.h itself.
--
--     make build/libattn.so build/tiny-stories.attn
--     luajit examples/lua/attn.lua build/tiny-stories.attn "Once upon a time"
--
-- As a module: local model = require("attn").open("model.attn"); print(model:generate("Once"))
-- The library is $ATTN_LIBRARY or build/libattn.so; attn.h is $ATTN_HEADER or the repository's.
local ffi = require "ffi"
local root = (debug.getinfo(1, "S").source:match("^@(.*)[/\\]") or ".") .. "/../../"
local header = assert(io.open(os.getenv("ATTN_HEADER") or root .. "attn.h")):read("*a")
local declared = "(\n/%* >>api%-%a+ ===.-)\n#ifdef __cplusplus\n}" -- inside of extern "C", in part one and in part two
for api in header:gmatch(declared) do ffi.cdef((api:gsub("/%*.-%*/", ""):gsub("\n#[^\n]*", ""):gsub("ATTN_API", ""))) end
local lib, Model = ffi.load(os.getenv("ATTN_LIBRARY") or root .. "build/libattn.so"), {}

-- Calls a function that returns a status; a failure is an error with the library's sentence. LuaJIT must
-- not compile the call, because C may call Lua back.
local function check(call, ...)
    local ctx = ffi.new("attn_ctx")
    return call(ctx, ...) == lib.ATTN_OK or error(ffi.string(ctx.message), 0)
end
jit.off(check)
-- A path or a name, which C would end before a NUL.
local function whole(name) return name and name:find("\0", 1, true) and error("a path or name has a NUL", 0) or name end

-- A struct of C with these fields. A field that it does not have is an error; ffi.new would ignore it.
-- A table of names is a struct inside it.
local function fill(made, fields)
    for field, value in pairs(fields) do
        if type(value) == "table" and #value == 0 then fill(made[field], value) else made[field] = value end
    end
    return made
end
local function struct(name, fields) return fill(ffi.new(name), fields) end

local function open(path)
    local model = ffi.new("attn_model *[1]")
    check(lib.attn_model_open, model, whole(path), nil)
    return setmetatable({handle = ffi.gc(model[0], lib.attn_model_close)}, {__index = Model})
end

-- The result of use(session), or its error, after the session is freed.
function Model:with_session(use)
    local session = ffi.new("attn_session *[1]")
    check(lib.attn_session_new, session, self.handle, nil)
    local done, result = pcall(use, session[0])
    lib.attn_session_free(session[0])
    if not done then error(result, 0) end return result
end

-- The ids of a text of any bytes, and their number. C would end the text before a NUL.
local function ids(model, text, encode)
    local tokens, n = ffi.new("int32_t[?]", #text + 1), ffi.new("size_t[1]", #text)
    check(encode or lib.attn_encode, tokens, n, lib.attn_model_tokenizer(model.handle), text, #text)
    return tokens, n[0]
end

-- The text that follows a prompt. how: fields of attn_generate_desc; each(piece) is given it as it comes.
function Model:generate(prompt, how, each)
    local pieces, going, problem = {}, true, nil
    local callback = ffi.cast("attn_text_fn", function(text, size) -- no error may leave it
        pieces[#pieces + 1] = ffi.string(text, size)
        going, problem = pcall(each or type, pieces[#pieces])
        return going and 0 or 1
    end)
    local done, message = pcall(self.with_session, self, function(session)
        local desc = struct("attn_generate_desc", how or {})
        local tokens, n = ids(self, prompt, desc.allow_special ~= 0 and lib.attn_encode_special)
        desc.text_fn, desc.prompt_tokens, desc.n_prompt_tokens = callback, tokens, n
        return check(lib.attn_generate, nil, session, nil, desc)
    end)
    callback:free()
    return done and going and table.concat(pieces) or error(going and message or problem, 0)
end

-- A copy of the logits, [0] to [n_vocab - 1], after a text; edits: tables of fields of attn_edit.
function Model:logits(text, edits)
    local row = ffi.new("float[?]", lib.attn_model_config(self.handle).n_vocab)
    return self:with_session(function(session)
        for _, edit in ipairs(edits or {}) do check(lib.attn_hook_edit, nil, session, whole(edit.name or "") and struct("attn_edit", edit)) end
        check(lib.attn_feed, session, ids(self, text))
        ffi.copy(row, lib.attn_session_logits(session), ffi.sizeof(row))
        return row
    end)
end

if not arg or arg[0] ~= debug.getinfo(1, "S").source:sub(2) then return {open = open, lib = lib} end
local done, message = pcall(function()
    local model = open(arg[1] or error("usage: luajit attn.lua MODEL.attn [PROMPT]", 0))
    local prompt, comma = arg[2] or "Once upon a time", ffi.new("int32_t[1]")
    io.stdout:setvbuf("no") io.write(prompt)
    model:generate(prompt, {max_tokens = 40}, io.write)
    check(lib.attn_text_token, comma, model.handle, ",")
    print(("\na comma's logit with a head %.2f, without it %.2f"):format(model:logits(prompt)[comma[0]],
        model:logits(prompt, {{name = "blocks.2.attn.hook_z", first_head = 3, n_heads = 1}})[comma[0]]))
end)
if not done then io.stderr:write(message, "\n") os.exit(1) end
