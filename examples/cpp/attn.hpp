/* attn.hpp - attn.h from C++17: objects that free themselves, spans, lambdas as hooks, exceptions.
 *
 *     #define ATTN_IMPLEMENTATION // in one file of the program, or link attn.o
 *     #include "attn.hpp"
 *
 *     attn::model model("build/tiny-stories.attn");
 *     attn::session session(model);
 *     session.generate("Once upon a time", [](std::string_view text) { std::cout << text; });
 *
 * A failure throws attn::error with the library's sentence. An exception in a callback stops the
 * call and comes out of it. Copies of a model share it, and a session keeps its model alive. Other
 * functions take the C pointers: attn::context ctx; ctx.check(attn_score(&ctx, ..., session.get())).
 */
#ifndef ATTN_HPP
#define ATTN_HPP

#include "attn.h"
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace attn
{

struct error : std::runtime_error {
    error(attn_status kind, const char *message) : std::runtime_error(message), status(kind) {}
    attn_status status;
};

/* Values in a row that live elsewhere: what std::span is in C++20. */
template <class T> class span
{
  public:
    span(T *data, std::size_t size) : data_(data), size_(size) {}
    template <class Values, class = std::enable_if_t<std::is_convertible_v<
                                decltype(std::data(std::declval<Values &>())), T *>>>
    span(Values &&values) : data_(std::data(values)), size_(std::size(values))
    {
    }
    T *data() const { return data_; }
    std::size_t size() const { return size_; }
    T *begin() const { return data_; }
    T *end() const { return data_ + size_; }
    T &operator[](std::size_t i) const { return data_[i]; }

  private:
    T *data_;
    std::size_t size_;
};
using ids = std::vector<attn_token>;

/* A name or a path for C, where it ends before a NUL: such a one is refused. */
inline const char *c_text(const std::string &text)
{
    if (text.find('\0') != std::string::npos)
        throw error(ATTN_E_ARGUMENT, "a name or a path has a NUL, which would cut it");
    return text.c_str();
}

/* A context for one call, or for the tensors that it makes. */
struct context : attn_ctx {
    context() : attn_ctx() {}
    context(const context &) = delete;
    context &operator=(const context &) = delete;
    ~context() { attn_ctx_free(this); }
    void check(attn_status failed) const
    {
        if (failed != ATTN_OK)
            throw error(failed, failed == ATTN_STOPPED ? "a callback asked to stop" : message);
    }
};

/* A tensor, with the memory that it shares with its copies. */
class tensor
{
  public:
    /* Of the caller's numbers, which must outlive it. */
    explicit tensor(attn_tensor borrowed) : view_(borrowed) {}
    /* Filled by a function that takes (attn_ctx *, attn_tensor *) and returns a status. */
    template <class Function> static tensor make(Function function)
    {
        tensor made{attn_tensor()};
        made.owner_ = std::make_shared<context>();
        made.owner_->check(function(made.owner_.get(), &made.view_));
        return made;
    }
    const attn_tensor &get() const { return view_; }
    std::size_t size(int dim) const { return view_.shape[dim]; }
    /* All elements of f32, slowest dimension first, of a tensor that has them in a row. */
    span<float> numbers() const
    {
        const attn_tensor row = attn_reshape(view_, attn_shape1(attn_count(view_)));
        if (view_.dtype != ATTN_F32 || row.ndim == 0 || (row.shape[0] > 1 && row.stride[0] != 1))
            throw error(ATTN_E_ARGUMENT, "numbers: the tensor is not dense, or not of f32");
        return {static_cast<float *>(view_.data), attn_count(view_)};
    }
    /* One element of a tensor of f32. */
    template <class... Index> float &operator()(Index... index) const
    {
        const std::size_t at[] = {static_cast<std::size_t>(index)...};
        float *element = static_cast<float *>(view_.data);
        for (std::size_t i = 0; i < sizeof...(index); i++)
            element += static_cast<std::ptrdiff_t>(at[i]) * view_.stride[i];
        return *element;
    }

  private:
    std::shared_ptr<context> owner_;
    attn_tensor view_;
};

class model
{
  public:
    explicit model(const std::string &path, const attn_model_desc *desc = nullptr)
    {
        context ctx;
        attn_model *opened = nullptr;
        ctx.check(attn_model_open(&ctx, &opened, c_text(path), desc));
        shared_.reset(opened, attn_model_close);
    }
    /* A .attn file in memory, which must outlive the model: embedded in the program, or fetched. */
    static model from_memory(span<const unsigned char> file, const attn_model_desc *desc = nullptr)
    {
        context ctx;
        attn_model *opened = nullptr;
        ctx.check(attn_model_open_memory(&ctx, &opened, file.data(), file.size(), desc));
        model made;
        made.shared_.reset(opened, attn_model_close);
        return made;
    }
    attn_model *get() const { return shared_.get(); }
    const attn_config &config() const { return *attn_model_config(get()); }

    ids encode(std::string_view text, bool allow_special = false) const
    {
        context ctx;
        ids found(text.size() + 1); /* the vocabulary may add a blank */
        std::size_t n = found.size();
        ctx.check((allow_special ? attn_encode_special : attn_encode)(
            &ctx, found.data(), &n, attn_model_tokenizer(get()), text.data(), text.size()));
        found.resize(n);
        return found;
    }
    std::string decode(span<const attn_token> tokens) const
    {
        std::string text;
        for (const attn_token token : tokens) {
            std::size_t size = 0;
            if (const char *bytes = attn_token_bytes(&size, attn_model_tokenizer(get()), token))
                text.append(bytes, size);
        }
        return text;
    }
    /* The id of a text that is one token. */
    attn_token token(const std::string &text) const
    {
        context ctx;
        attn_token id = -1;
        ctx.check(attn_text_token(&ctx, &id, get(), c_text(text)));
        return id;
    }
    /* A weight under TransformerLens's name. */
    tensor weight(const std::string &name) const
    {
        return tensor::make([&](attn_ctx *ctx, attn_tensor *out) {
            return attn_model_tensor(ctx, out, get(), c_text(name));
        });
    }

  private:
    model() = default;
    std::shared_ptr<attn_model> shared_;
};

class session
{
  public:
    using hook_fn = std::function<void(const attn_activation &)>;
    using text_fn = std::function<void(std::string_view)>;

    int n_threads = 0; /* a call uses at most so many; 0: the library chooses */
    explicit session(const model &of, const attn_session_desc *desc = nullptr)
        : model_(of), state_(std::make_unique<state>())
    {
        context ctx;
        attn_session *opened = nullptr;
        ctx.check(attn_session_new(&ctx, &opened, of.get(), desc));
        session_.reset(opened);
    }
    session(session &&other) = default;
    session &operator=(session &&other) noexcept
    {
        session old(std::move(other));
        std::swap(n_threads, old.n_threads);
        std::swap(model_, old.model_);
        std::swap(state_, old.state_);
        std::swap(session_, old.session_);
        return *this; /* the session that this was ends with `old`: before its model and its hooks */
    }
    /* NULL if the session was moved from; every other call of such a session throws. */
    attn_session *get() const { return session_.get(); }
    std::size_t size() const { return attn_session_length(get()); }
    span<const attn_token> tokens() const { return {attn_session_tokens(get()), size()}; }
    /* [n_vocab], of the last token; valid until the next call. Empty before the first. */
    span<const float> logits() const
    {
        const float *row = attn_session_logits(get());
        return {row, row ? model_.config().n_vocab : 0};
    }
    void feed(span<const attn_token> more) { run(attn_feed, more.data(), more.size()); }
    void feed(std::string_view text)
    {
        mine(); /* before the model is asked, which went with the session */
        feed(model_.encode(text));
    }
    void truncate(std::size_t length) { run(attn_session_truncate, length); }
    /* From now on it runs on another workspace of its model, such as that of another thread. */
    void use(attn_workspace *workspace) { run(attn_session_set_workspace, workspace); }
    /* Feeds a prompt, hands the text that follows to fn. accepted: the tokens of both. */
    attn_generation generate(std::string_view prompt, const text_fn &fn,
                             attn_generate_desc how = {})
    {
        callback<text_fn> out{&mine(), fn};
        attn_generation made = {};
        ids tokens; /* of any bytes, where a text for C would end before a NUL */
        if (!prompt.empty() && !how.prompt_tokens) {
            tokens = model_.encode(prompt, how.allow_special != 0);
            how.prompt_tokens = tokens.data();
            how.n_prompt_tokens = tokens.size();
        }
        how.text_fn = hand_over;
        how.text_user = &out;
        run([&](attn_ctx *ctx, attn_session *from) {
            return attn_generate(ctx, &made, from, nullptr, &how);
        });
        return made;
    }
    /* Calls fn for every activation whose name matches, until unhook. fn may write to the value. */
    attn_hook_id hook(const std::string &pattern, const hook_fn &fn)
    {
        auto &hooks = mine().hooks;
        hooks.push_back({0, std::make_unique<callback<hook_fn>>(callback<hook_fn>{&mine(), fn})});
        try {
            run([&](attn_ctx *ctx, attn_session *of) {
                return attn_hook(ctx, &hooks.back().first, of, c_text(pattern), show,
                                 hooks.back().second.get());
            });
        } catch (...) {
            hooks.pop_back();
            throw;
        }
        return hooks.back().first;
    }
    attn_hook_id edit(const attn_edit &change)
    {
        attn_hook_id id = 0;
        run([&](attn_ctx *ctx, attn_session *of) { return attn_hook_edit(ctx, &id, of, &change); });
        return id;
    }
    void unhook(attn_hook_id id)
    {
        run(attn_unhook, id);
        mine().drop(id);
    }

  private:
    struct state;
    template <class Function> struct callback {
        state *of;
        Function fn;
    };
    using kept = std::pair<attn_hook_id, std::unique_ptr<callback<hook_fn>>>;
    struct state { /* stays where it is when the session moves */
        std::exception_ptr caught;
        int running = 0; /* callbacks that have not returned */
        std::vector<kept> hooks, dropped;

        /* A callback that is gone from the session is freed when none runs: it may be that one. */
        void drop(attn_hook_id id)
        {
            for (std::size_t i = 0; i < hooks.size(); i++)
                if (hooks[i].first == id) {
                    dropped.push_back(std::move(hooks[i]));
                    hooks.erase(hooks.begin() + static_cast<std::ptrdiff_t>(i));
                    break;
                }
            if (running == 0)
                dropped.clear();
        }
    };
    state &mine() const
    {
        if (!state_)
            throw error(ATTN_E_ARGUMENT, "attn::session: it was moved from, and holds no session");
        return *state_;
    }
    template <class Function, class... Argument> void run(Function function, Argument... argument)
    {
        context ctx;
        state &here = mine();
        ctx.n_threads = n_threads;
        here.caught = nullptr; /* of a call from C, which its callback has stopped */
        const attn_status failed = function(&ctx, get(), argument...);
        if (here.caught)
            std::rethrow_exception(std::exchange(here.caught, nullptr));
        ctx.check(failed);
    }
    template <class To, class Value> static int guarded(To *to, const Value &value) noexcept
    {
        state *const of = to->of;
        int stop = 0;
        of->running++;
        try {
            to->fn(value);
        } catch (...) {
            of->caught = std::current_exception();
            stop = 1;
        }
        if (--of->running == 0)
            of->dropped.clear();
        return stop;
    }
    static int show(const attn_activation *activation, void *user)
    {
        return guarded(static_cast<callback<hook_fn> *>(user), *activation);
    }
    static int hand_over(const char *text, std::size_t size, void *user)
    {
        return guarded(static_cast<callback<text_fn> *>(user), std::string_view(text, size));
    }

    model model_;
    std::unique_ptr<state> state_;
    std::unique_ptr<attn_session, void (*)(attn_session *)> session_{nullptr, attn_session_free};
};

} // namespace attn
#endif
