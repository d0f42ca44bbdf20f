// attn.hpp: what objects own, what spans show, what exceptions do. Run by tests/platforms/languages.sh.
#define ATTN_IMPLEMENTATION
#include "attn.hpp"
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

static int failures;
#define CHECK(condition)                                                                           \
    (void)((condition) || (std::printf("line %d: %s\n", __LINE__, #condition), failures++))

template <class Function> static attn_status status_of(Function function)
{
    try {
        function();
    } catch (const attn::error &error) {
        return std::strlen(error.what()) > 10 ? error.status : ATTN_OK;
    }
    return ATTN_OK;
}

struct mine {
};

static void exceptions_come_out(const attn::model &model)
{
    attn::session session(model);
    session.feed("Once upon");
    const std::size_t n = session.size();
    const attn_hook_id id =
        session.hook("hook_embed", [](const attn_activation &) { throw mine(); });
    bool caught = false;
    try {
        session.feed(" a time");
    } catch (const mine &) {
        caught = true;
    }
    CHECK(caught && session.size() == n);
    session.unhook(id);
    session.feed(" a time");
    CHECK(session.size() > n);
    caught = false;
    try {
        session.generate("Once", [](std::string_view) { throw mine(); });
    } catch (const mine &) {
        caught = true;
    }
    CHECK(caught);
}

static attn::session moved(const attn::model &model, int *calls)
{
    attn::session session(model);
    session.hook("hook_embed", [calls](const attn_activation &) { ++*calls; });
    return session;
}

static void objects_own(const char *path)
{
    int calls = 0;
    std::vector<attn::session> sessions;
    {
        const attn::model model(path);
        sessions.push_back(moved(model, &calls));
        sessions.push_back(moved(model, &calls));
    }
    for (attn::session &session : sessions) // the model is gone, and shared by them
        session.feed(attn::ids{506, 511, 258, 433});
    CHECK(calls == 2);
    CHECK(std::memcmp(sessions[0].logits().data(), sessions[1].logits().data(),
                      sessions[0].logits().size() * sizeof(float)) == 0);
}

/* A session that is assigned ends while its model and its hooks are still there. */
static void sessions_move(const char *path, const attn::model &model)
{
    int calls = 0;
    attn::session a{attn::model(path)};
    a.hook("hook_embed", [](const attn_activation &) {});
    a = moved(attn::model(path), &calls);
    a.feed("Once");
    CHECK(calls == 1);
    attn::session b(model);
    std::swap(a, b);
    b.feed(" upon");
    a.feed("Once");
    CHECK(calls == 2 && a.size() == 1 && b.size() == 2);
    attn::session c(std::move(a));
    CHECK(c.size() == 1 && a.get() == nullptr && a.size() == 0 && a.logits().size() == 0);
    CHECK(status_of([&] { a.feed("Once"); }) == ATTN_E_ARGUMENT);
    CHECK(status_of([&] { a.hook("hook_embed", [](const attn_activation &) {}); }) ==
          ATTN_E_ARGUMENT);
    CHECK(status_of([&] { a.generate("Once", [](std::string_view) {}); }) == ATTN_E_ARGUMENT);
    CHECK(status_of([&] { a.unhook(1); }) == ATTN_E_ARGUMENT);
}

/* What a hook throws during a call from C does not come out of a later call. */
static void exceptions_of_other_calls(const attn::model &model)
{
    attn::session session(model);
    int n = 0;
    const attn::ids ids = model.encode("Once upon a time");
    attn::context ctx;
    session.hook("hook_embed", [&n](const attn_activation &) {
        if (n++ == 0)
            throw mine();
    });
    CHECK(attn_feed(&ctx, session.get(), ids.data(), ids.size()) == ATTN_STOPPED);
    session.feed(ids);
    CHECK(session.size() == ids.size());
}

/* Callbacks go with unhook, also with that of the callback itself; one that is refused is not kept. */
static void callbacks_are_freed(const attn::model &model)
{
    const auto counted = std::make_shared<int>(0);
    attn::session session(model);
    attn_hook_id id = 0;
    for (int i = 0; i < 10; i++)
        session.unhook(session.hook("hook_embed", [counted](const attn_activation &) {}));
    CHECK(counted.use_count() == 1);
    CHECK(status_of([&] { session.hook("no_such", [counted](const attn_activation &) {}); }) ==
          ATTN_E_NAME);
    CHECK(counted.use_count() == 1);
    id = session.hook("hook_embed", [counted, &session, &id](const attn_activation &) {
        session.unhook(id);
        ++*counted;
    });
    session.feed("Once");
    session.feed(" upon");
    CHECK(*counted == 1 && counted.use_count() == 1);
}

static void spans_and_tensors(const attn::model &model)
{
    const std::array<int32_t, 4> ids = {{506, 511, 258, 433}};
    CHECK(model.encode("Once upon a time") == attn::ids(ids.begin(), ids.end()));
    CHECK(model.decode(ids) == "Once upon a time");
    attn::session session(model);
    CHECK(session.logits().size() == 0);
    session.n_threads = 1;
    session.feed(ids);
    CHECK(session.logits().size() == 2048 && session.tokens().size() == 4 &&
          session.tokens()[3] == 433);
    attn::tensor copy = model.weight("blocks.0.attn.W_Q");
    {
        const attn::tensor w = copy;
        copy = model.weight("embed.W_E");
        CHECK(w.size(0) == 6 && w.size(1) == 192 && w.size(2) == 32);
        attn_ctx ctx = ATTN_ZERO;
        attn_tensor qkv = ATTN_ZERO;
        CHECK(attn_model_tensor(&ctx, &qkv, model.get(), "blocks.0.attn.W_QKV") == ATTN_OK);
        CHECK(w(2, 7, 5) == attn_get2(qkv, 7, 2 * 32 + 5));
        attn_ctx_free(&ctx);
    }
    CHECK(copy.size(0) == 2048);
    CHECK(copy.numbers().size() == std::size_t{2048} * 192 && copy.numbers()[193] == copy(1, 1));
    CHECK(status_of([&] { attn::tensor(attn_transpose(copy.get(), 0, 1)).numbers(); }) ==
          ATTN_E_ARGUMENT);
}

static void a_model_in_memory(const char *path, const attn::model &model)
{
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    const attn::span<const unsigned char> whole{
        reinterpret_cast<const unsigned char *>(bytes.data()), bytes.size()};
    attn::session from_memory(attn::model::from_memory(whole)), from_file(model);
    from_memory.feed("Once upon");
    from_file.feed("Once upon");
    CHECK(std::memcmp(from_memory.logits().data(), from_file.logits().data(),
                      from_file.logits().size() * sizeof(float)) == 0);
    CHECK(status_of([&] { attn::model::from_memory({whole.data(), 100}); }) == ATTN_E_FORMAT);
}

/* A session goes on, bit by bit, on the workspace that another thread would have. */
static void another_workspace(const attn::model &model)
{
    attn::context ctx;
    attn_workspace *workspace = nullptr;
    attn::session moves(model), stays(model);
    ctx.check(attn_workspace_new(&ctx, &workspace, model.get(), nullptr));
    moves.feed("Once upon");
    moves.use(workspace);
    attn_workspace_free(workspace); // the session keeps it
    moves.feed(" a time");
    stays.feed("Once upon a time");
    CHECK(std::memcmp(moves.logits().data(), stays.logits().data(),
                      stays.logits().size() * sizeof(float)) == 0);
    CHECK(status_of([&] { moves.use(nullptr); }) == ATTN_E_ARGUMENT);
}

/* A NUL cuts no text, and is refused in names. */
static void texts_with_a_nul(const attn::model &model)
{
    using namespace std::string_literals;
    attn::session session(model);
    attn_generate_desc how{};
    how.max_tokens = 5;
    session.generate(
        "Once\0upon"s, [](std::string_view) {}, how);
    CHECK(session.size() == 9);
    session.generate(
        "", [](std::string_view) {}, how);
    CHECK(session.size() == 14);
    CHECK(status_of([&] { model.weight("embed.W_E\0x"s); }) == ATTN_E_ARGUMENT);
    CHECK(status_of([&] { model.token(","s + '\0'); }) == ATTN_E_ARGUMENT);
    CHECK(status_of([&] { session.hook("hook_embed\0x"s, [](const attn_activation &) {}); }) ==
          ATTN_E_ARGUMENT);
}

/* A program goes on from the text that it was handed. */
static void stop_strings(const attn::model &model)
{
    const char *const stop[] = {" Lily"};
    attn::session session(model);
    attn_generate_desc how{};
    std::string handed = "Once upon a time";
    how.stop_strings = stop;
    how.n_stop_strings = 1;
    const attn_generation made = session.generate(
        handed, [&](std::string_view text) { handed += text; }, how);
    CHECK(made.reason == ATTN_STOP_STRING && made.accepted < session.size());
    session.truncate(made.accepted);
    CHECK(model.decode(session.tokens()) == handed);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    const attn::model model(argv[1]);
    exceptions_come_out(model);
    objects_own(argv[1]);
    sessions_move(argv[1], model);
    stop_strings(model);
    exceptions_of_other_calls(model);
    callbacks_are_freed(model);
    spans_and_tensors(model);
    a_model_in_memory(argv[1], model);
    another_workspace(model);
    texts_with_a_nul(model);
    CHECK(status_of([] { attn::model("/no/such.attn"); }) == ATTN_E_IO);
    CHECK(status_of([&] { model.token("Once upon"); }) == ATTN_E_TOKEN);
    CHECK(status_of([&] {
              attn::session(model).hook("no_such", [](const attn_activation &) {});
          }) == ATTN_E_NAME);
    CHECK(status_of([&] { attn::session(model).feed(attn::ids{-1}); }) == ATTN_E_TOKEN);
    return failures != 0;
}
