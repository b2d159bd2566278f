# bash completion for troop. The config keys come from the program, so that they are always current.

# Paths: readline quotes them and marks folders; keys must not be changed that way.
_troop_paths() {
  compopt -o filenames 2> /dev/null
  mapfile -t COMPREPLY < <("$@")
}

# Overrides. A key of a list (layers[].units) cannot be overridden.
_troop_keys() {
  compopt -o nospace 2> /dev/null
  mapfile -t COMPREPLY < <(
    compgen -S = -W "$(troop config --keys 2> /dev/null | grep -vF '[]')" -- "$1")
}

_troop_configs() {
  compgen -f -X '!*.toml' -- "$1"
  compgen -d -- "$1"
}

_troop() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local commands='train join doctor health keygen sweep eval play export serve plot resume dashboard scale status role config env bench selftest tokenize predict plan experiment replay'
  local command='' flags='' arguments=0 i group=''
  COMPREPLY=()
  # "key=value" arrives as three words, because = separates words.
  [[ $previous == '=' || $word == '=' ]] && return
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${COMP_WORDS[i]} in
      --index | --coordinator | --heartbeat-timeout | --episodes | --epsilon | --seed | --fps | \
        --gif | --png | --seeds | --first-seed | --trials | --search-seed | --asha | --min-resource | --reduction-factor | --early-stopping-rate | --jobs | --title | --x | --check | --plugin | --language | --envs | --seconds | --mode | \
        --learners | --repeats | --link | --out | --format | --vocab | --count | --role | --key | --logs | --name | --health | --wait | --listen | --advertise-host | --token-file | \
        --engine | --machine | --machines | --serve | --record | --confusion | --text-pair | --input | --output | --text-column | --delimiter | --threads | \
        --batch-rows | --batch-wait-us | --body-bytes | --connections | --deadline-ms | --drain-grace-s | --drain-s | --queue-rows | --rate-limit | --reload-s | --session-idle-s | --sessions) ((++i)) ;;  # skip its value
      -*) ;;
      sync) [[ $command == selftest ]] && command=selftest-sync ;;
      migrate) [[ $command == config ]] && command=config-migrate ;;
      imdb-parallel) [[ $command == experiment ]] && command=imdb-parallel ;;
      env)
        if [[ $command == bench ]]; then
          command=env-bench
        elif [[ -z $command$group ]]; then
          group=env
        fi ;;
      *) if [[ -z $command ]]; then command=${group:+env-}${COMP_WORDS[i]}; else ((++arguments)); fi ;;
    esac
  done
  case $previous in
    --out | --input | --output | --confusion | --gif | --png | --plugin | --vocab | --key | --logs | --health) _troop_paths compgen -f -- "$word"; return ;;
    --record) _troop_paths compgen -d -- "$word"; return ;;
    --check) _troop_paths _troop_configs "$word"; return ;;
    --engine) mapfile -t COMPREPLY < <(compgen -W 'local slurm mpi kubernetes' -- "$word"); return ;;
    --format) mapfile -t COMPREPLY < <(compgen -W 'safetensors onnx c' -- "$word"); return ;;
    --x) mapfile -t COMPREPLY < <(compgen -W 'steps updates minutes' -- "$word"); return ;;
    --language) mapfile -t COMPREPLY < <(compgen -W 'c c++ python' -- "$word"); return ;;
    --index | --coordinator | --heartbeat-timeout | --episodes | --epsilon | --seed | --fps | --envs | --seconds | --mode | \
      --seeds | --first-seed | --jobs | --title | --count | --name | --wait | --learners | --repeats | --link | --machine | --machines | --serve | --advertise-host | --text-pair | --text-column | --threads | \
      --batch-rows | --batch-wait-us | --body-bytes | --connections | --deadline-ms | --drain-grace-s | --drain-s | --queue-rows | --rate-limit | --reload-s | --session-idle-s | --sessions) return ;;
    --role)
      mapfile -t COMPREPLY < <(
        compgen -W 'coordinator replay paramserver learner actor evaluator tool' -- "$word")
      return ;;
  esac
  case $group$command in
    env) flags='list new check bench --help' ;;
    bench) flags='env --help' ;;
    *env-bench) flags='--plugin --envs --seconds --help' ;;
    selftest) flags='sync --help' ;;
    selftest-sync) flags='--mode --seed --list --json --help' ;;
    *env-list) flags='--plugin --help' ;;
    *env-new) flags='--language --help' ;;
    *env-check) flags='--plugin --quick --help' ;;
    '') flags="$commands --help --version" ;;
    train) flags='--continue --dry-run --engine --overwrite --plain --insecure --help' ;;
    join) flags='--advertise-host --count --health --key --role --logs --rejoin --wait --help' ;;
    health) flags='--ready --help' ;;
    keygen) flags='--role --name --rotate --help' ;;
    sweep) flags='--seeds --first-seed --trials --search-seed --asha --min-resource --reduction-factor --early-stopping-rate --jobs --dry-run --overwrite --help' ;;
    plot) flags='--out --title --x --help' ;;
    resume) flags='--engine --plain --insecure --help' ;;
    dashboard) flags='--help --insecure --listen --token-file' ;;
    scale) flags='--help' ;;
    status) flags='--json --key --help' ;;
    doctor) flags='--coordinator --key --insecure --help' ;;
    eval) flags='--best --episodes --epsilon --seed --json --record --confusion --help' ;;
    play) flags='--best --episodes --epsilon --seed --gif --png --fps --help' ;;
    export) flags='--best --format --out --help' ;;
    serve) flags='--batch-rows --batch-wait-us --best --body-bytes --connections --deadline-ms --drain-grace-s --drain-s --listen --queue-rows --rate-limit --reload-s --session-idle-s --sessions --token-file --help' ;;
    replay) flags='--insecure --help' ;;
    role) flags='--index --auto-index --coordinator --heartbeat-timeout --advertise-host --key --rejoin --insecure --help' ;;
    tokenize) flags='--vocab --cased --json --help' ;;
    predict) flags='--best --json --text-pair --input --output --text-column --delimiter --threads --help' ;;
    plan) flags='--learners --machine --machines --serve --help' ;;
    experiment) flags='imdb-parallel --help' ;;
    imdb-parallel) flags='--learners --link --out --overwrite --quick --repeats --seconds --help' ;;
    config) flags='migrate --check --keys --markdown --help' ;;
    config-migrate) flags='--dry-run --help' ;;
    *) return ;;
  esac
  case $word:$command:$arguments in
    -*) ;;
    *:train:0 | *:plan:0 | *:sweep:0 | *:replay:0 | *:config-migrate:0 | *:env-check:0 | *:env-bench:0) _troop_paths _troop_configs "$word"; return ;;
    *:train:* | *:plan:* | *:replay:* | *:imdb-parallel:* | *:sweep:* | *:env-check:* | *:env-bench:* | *:resume:[1-9]*) _troop_keys "$word"; return ;;
    *:eval:0 | *:play:0 | *:export:0 | *:serve:0 | *:keygen:0 | *:resume:0 | *:scale:0 | *:status:0 | *:predict:0 | *:plot:* | *:dashboard:*) _troop_paths compgen -d -- "$word"; return ;;
    *:health:0) _troop_paths compgen -f -- "$word"; return ;;
    *:scale:*) flags='actors= replay= learners= paramserver=' ;;
    *:role:0) flags='actor replay learner paramserver evaluator' ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
}
complete -F _troop troop
