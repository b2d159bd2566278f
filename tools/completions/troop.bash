# bash completion for troop. The config keys come from the program, so that they are never stale.
_troop() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local commands='train eval play resume status role config'
  local roles='actor replay learner paramserver evaluator'
  local command='' i
  # "key=value" arrives as three words, because = separates words.
  if [[ $previous == '=' || $word == '=' ]]; then
    COMPREPLY=()
    return
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ ${COMP_WORDS[i]} != -* ]]; then
      command=${COMP_WORDS[i]}
      break
    fi
  done
  case $command in
    '') mapfile -t COMPREPLY < <(compgen -W "$commands --help --version" -- "$word") ;;
    train)
      if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W '--dry-run --overwrite --plain --help' -- "$word")
      elif ((COMP_CWORD == i + 1)); then
        mapfile -t COMPREPLY < <(compgen -f -X '!*.toml' -- "$word"; compgen -d -S / -- "$word")
        compopt -o nospace 2> /dev/null
      else
        mapfile -t COMPREPLY < <(compgen -S = -W "$(troop config --keys 2> /dev/null)" -- "$word")
        compopt -o nospace 2> /dev/null
      fi ;;
    role)
      if ((COMP_CWORD == i + 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$roles" -- "$word")
      else
        mapfile -t COMPREPLY < <(compgen -W '--index --coordinator --dead-after --help' -- "$word")
      fi ;;
    config)
      mapfile -t COMPREPLY < <(compgen -f -- "$word"
        compgen -W '--check --keys --markdown --help' -- "$word") ;;
    eval | play | resume | status)
      local flags='--json --help'
      [[ $command == resume ]] && flags='--plain --help'
      [[ $command == eval ]] && flags='--episodes --epsilon --seed --json --help'
      [[ $command == play ]] && flags='--episodes --epsilon --seed --gif --png --fps --help'
      if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
      else
        mapfile -t COMPREPLY < <(compgen -d -- "$word")
      fi ;;
  esac
}
complete -o filenames -F _troop troop
