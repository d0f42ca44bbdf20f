-- attn.h from LuaJIT, whose FFI reads C: the declarations are those of attn.h itself.
--
--     make build/libattn.so build/tiny-stories.attn
--     luajit examples/lua/attn.lua build/tiny-stories.attn "Once upon a time"
--
-- As a module: local model = require("attn").open("model.attn"); print(model:generate("Once"))
--              print(model:query("tokens", {"Once upon a time"}).facts.mean_loss[1])    a question of lens
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
    local tokens, n = ffi.new("int32_t[?]", #text + 1), ffi.new("size_t[1]", #text + 1)
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

-- Declares, once, the enums, structs and functions of questions: those of tools/waist.
local is_declared
local function declare_questions()
    if is_declared then return end
    local function read(name) return (assert(io.open(root .. "tools/waist/" .. name)):read("*a"):gsub("/%*.-%*/", "")) end
    local waist = read("answer.h") .. read("query.h")
    for enum in waist:gmatch("\n(%l* ?enum [%l_]* ?{[^}]*}[^;]*;)") do ffi.cdef(enum) end
    ffi.cdef "typedef struct lens_query lens_query;"
    for _, name in ipairs {"table", "values", "setting"} do ffi.cdef((waist:match("typedef struct lens_" .. name .. " {.-\n} [^;]+;"))) end
    for declared in waist:gmatch("\nLENS_FN ([^{]-)\n{") do ffi.cdef(declared .. ";") end
    is_declared = true
end

-- The names of a command's words, in their order.
local function words_of(command)
    local names, setting, i = {}, ffi.new("lens_setting"), 0
    while lib.lens_query_setting(setting, command, i) ~= 0 do
        names[setting.word], i = ffi.string(setting.name), i + 1
    end
    return names
end

-- The values of a column: NaN and false where they are missing.
local function values_of(column)
    local values = {}
    for i = 0, tonumber(column.n) - 1 do
        if column.bytes ~= nil then
            local begin = i > 0 and column.ends[i - 1] or 0
            values[i + 1] = column.is_missing[i] == 0 and ffi.string(column.bytes + begin, column.ends[i] - begin)
        else
            values[i + 1] = column.numbers[i]
            if column.kind == lib.LENS_FLAGS then values[i + 1] = column.numbers[i] == 1 end
        end
    end
    return values
end

local function read_answer(q)
    local answer, of, column, ctx, t = {notes = {}}, ffi.new("lens_table"), ffi.new("lens_values"), ffi.new("attn_ctx"), 0
    while lib.lens_query_table(of, q, t) ~= 0 do
        local columns, i = {}, 0
        while lib.lens_query_column(ctx, column, q, t, i) ~= 0 do columns[ffi.string(column.name)], i = values_of(column), i + 1 end
        answer[ffi.string(of.name)], t = columns, t + 1
    end
    while lib.lens_query_note(q, #answer.notes) ~= nil do
        answer.notes[#answer.notes + 1] = ffi.string(lib.lens_query_note(q, #answer.notes))
    end
    return answer
end

-- The answer to a question of lens: its command, the words behind that, its settings by name, of which a list has several values.
-- model:query("patch", {"Tom was a boy. He", "Tom was a girl. He"}, {by = "heads"}).heads.answer[1]: a table of columns for
-- each table of the answer, and the list `notes`.
function Model:query(command, words, settings)
    declare_questions()
    local q, names = ffi.new("lens_query *[1]"), words_of(command)
    check(lib.lens_query_new, q, self.handle, whole(command), lib.LENS_FACE_PAGE, 0)
    local function set(name, value)
        for _, one in ipairs(type(value) == "table" and value or {value}) do
            check(lib.lens_query_set, q[0], whole(name) or error(command .. " takes no further word", 0), tostring(one), #tostring(one))
        end
    end
    local done, result = pcall(function()
        for i, word in ipairs(words or {}) do set(names[i], word) end
        for name, value in pairs(settings or {}) do set(name, value) end
        check(lib.lens_query_run, q[0], nil, nil)
        return read_answer(q[0])
    end)
    lib.lens_query_free(q[0])
    return done and result or error(result, 0)
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
