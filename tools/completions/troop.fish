# fish completion for troop. The config keys come from the program, so that they are never stale.
set -l commands train eval play resume status role config env env-check bench check tokenize
complete -c troop -f
complete -c troop -n "not __fish_seen_subcommand_from $commands" -l version -d 'Print the version'
complete -c troop -l help -d 'Explain'
complete -c troop -n "not __fish_seen_subcommand_from $commands" -a train -d 'Start a fleet'
complete -c troop -n "not __fish_seen_subcommand_from $commands" -a eval -d 'Play and print returns'
complete -c troop -n "not __fish_seen_subcommand_from $commands" -a play -d 'Draw a game'
complete -c troop -n "not __fish_seen_subcommand_from $commands" -a resume -d 'Go on with a run'
complete -c troop -n "not __fish_seen_subcommand_from $commands" -a status -d 'How a run is doing'
complete -c troop -n "not __fish_seen_subcommand_from $commands" -a role -d 'Start one role alone'
complete -c troop -n "not __fish_seen_subcommand_from $commands" -a config -d 'The config keys'
complete -c troop -n "not __fish_seen_subcommand_from $commands" -a env -d 'Environments of your own'
complete -c troop -n "not __fish_seen_subcommand_from $commands" -a env-check -d 'Try an environment'
complete -c troop -n "not __fish_seen_subcommand_from $commands" -a bench -d 'How fast parts of a run are'
complete -c troop -n "not __fish_seen_subcommand_from $commands" -a check -d 'Compare parts with plain loops'
complete -c troop -n "not __fish_seen_subcommand_from $commands" -a tokenize -d 'How text is cut'
complete -c troop -n '__fish_seen_subcommand_from env' -a 'list new check bench'
complete -c troop -n '__fish_seen_subcommand_from check' -a sync
complete -c troop -n '__fish_seen_subcommand_from sync' -l mode -x -d 'One of them'
complete -c troop -n '__fish_seen_subcommand_from sync' -l list -d 'Names only'
complete -c troop -n '__fish_seen_subcommand_from bench' -a env
complete -c troop -n '__fish_seen_subcommand_from bench' -l envs -x -d 'Stepped together'
complete -c troop -n '__fish_seen_subcommand_from bench' -l seconds -x -d 'How long'
complete -c troop -n '__fish_seen_subcommand_from env' -l language -xa 'c c++ python' -d 'Of the example'
complete -c troop -n '__fish_seen_subcommand_from env env-check' -l plugin -rF -d 'A shared library'
complete -c troop -n '__fish_seen_subcommand_from env env-check' -l quick -d 'Seconds, not a minute'
complete -c troop -n '__fish_seen_subcommand_from train env env-check' -F
# A key of a list (layers[].units) can't be overridden.
complete -c troop -n '__fish_seen_subcommand_from train resume' \
  -a "(troop config --keys 2>/dev/null | string match -v '*[]*' | string replace -r '\$' =)"
complete -c troop -n '__fish_seen_subcommand_from train' -l dry-run -d 'Only say what would start'
complete -c troop -n '__fish_seen_subcommand_from train resume' -l plain -d 'No live block'
complete -c troop -n '__fish_seen_subcommand_from eval play resume status' -F
complete -c troop -n '__fish_seen_subcommand_from role' \
  -a 'actor replay learner paramserver evaluator'
complete -c troop -n '__fish_seen_subcommand_from config' -l keys -d 'One key a line'
complete -c troop -n '__fish_seen_subcommand_from config' -l markdown -d 'docs/config.md'
complete -c troop -n '__fish_seen_subcommand_from config' -l check -rF -d 'Read a file, print it'
complete -c troop -n '__fish_seen_subcommand_from role' -l index -x -d 'Which one of its kind'
complete -c troop -n '__fish_seen_subcommand_from role' -l coordinator -x -d 'Its endpoint'
complete -c troop -n '__fish_seen_subcommand_from role' -l dead-after -x -d 'In seconds'
complete -c troop -n '__fish_seen_subcommand_from eval play' -l episodes -x -d 'How many'
complete -c troop -n '__fish_seen_subcommand_from eval play' -l epsilon -x -d 'Random actions'
complete -c troop -n '__fish_seen_subcommand_from eval play' -l seed -x -d 'Of the episodes'
complete -c troop -n '__fish_seen_subcommand_from play' -l fps -x -d 'Frames per second'
complete -c troop -n '__fish_seen_subcommand_from play' -l gif -rF -d 'Write an animated GIF'
complete -c troop -n '__fish_seen_subcommand_from play' -l png -rF -d 'Write a strip of frames'
complete -c troop -n '__fish_seen_subcommand_from eval status' -l json -d 'As JSON'
complete -c troop -n '__fish_seen_subcommand_from train' -l overwrite -d 'Replace a run'
complete -c troop -n '__fish_seen_subcommand_from tokenize' -l vocab -rF -d 'vocab.txt or .model'
complete -c troop -n '__fish_seen_subcommand_from tokenize' -l cased -d 'Keep capitals'
complete -c troop -n '__fish_seen_subcommand_from tokenize' -l json -d 'A line a text'
