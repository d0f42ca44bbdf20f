#!/bin/sh
# What a shell loads to complete the command line of an installed program: sh tools/packaging/completion.sh SHELL NAME, where
# SHELL is bash, zsh or fish. The program itself says what may stand at the cursor, by its table of options
# (print_completions in tools/common/program.h): words, and ":files" for any file.
set -eu
function=_$(printf '%s' "$2" | tr - _)
case $1 in
bash) cat <<'END' ;;
FUNCTION()
{
    local word=${COMP_WORDS[COMP_CWORD]} line words
    [ "$word" != = ] || word= # bash parts --name=value
    words=$(NAME --help complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1)
    COMPREPLY=($(compgen -W "${words/:files/}" -- "$word"))
    case $words in *:files*)
        compopt -o default # bash's own completion of files, where nothing else fits
        [ ${#COMPREPLY[@]} = 0 ] || while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$word") ;;
    esac
}
complete -F FUNCTION NAME
END
zsh) cat <<'END' ;;
#compdef NAME
local line
local -a found
for line in ${(f)"$(NAME --help complete "${(@)words[2,CURRENT]}" 2>/dev/null)"}; do
    [[ $line = :files ]] && line= && { compset -P '--*='; _files }
    [[ -z $line ]] || found+=("${line/$'\t'/:}")
done
compset -P '--*='
(( ! $#found )) || _describe NAME found
END
fish) cat <<'END' ;;
function FUNCTION
    set -l word (commandline -ct)
    set -l begin (string match -r -- '^--.*=' "$word")
    for line in (NAME --help complete (commandline -opc)[2..-1] "$word" 2>/dev/null)
        if test "$line" = :files
            __fish_complete_path (string replace -- "$begin" '' "$word") | string replace -r -- '^' "$begin"
        else
            echo "$begin$line"
        end
    end
end
complete -c NAME -f -a '(FUNCTION)'
END
esac | sed "s/FUNCTION/$function/; s/NAME/$2/g"
