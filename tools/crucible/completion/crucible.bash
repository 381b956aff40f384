# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# bash completion of crucible(1). Install as /usr/share/bash-completion/completions/crucible.
# A test compares the options below with the program's own table.

_crucible_mount() {
	local i

	for ((i = 1; i < ${#COMP_WORDS[@]} - 1; i++)); do
		if [[ ${COMP_WORDS[i]} == --mount ]]; then
			printf '%s' "${COMP_WORDS[i + 1]}"
			return
		fi
	done
	printf '%s' "${CRUCIBLE_MOUNT:-/crucible}"
}

# Names are those of the mount's directories: nothing is asked of the daemon that `ls` would not ask.
_crucible_names() { # SUBDIRECTORY
	local dir names

	dir=$(_crucible_mount)/$1
	names=$(cd "$dir" 2>/dev/null && printf '%s\n' */)
	names=${names//\//}
	[[ $names == '*' ]] || printf '%s\n' "$names"
}

_crucible_words() { # WORD...
	# Names of sandboxes hold no blanks.
	# shellcheck disable=SC2207
	COMPREPLY=($(compgen -W "$*" -- "$cur"))
}

_crucible_options() { # COMMAND
	local common='--mount --output --help'
	local make='--profile --from --snapshot --vcpus --memory --disk --net-allow -p --publish'
	local exec='--timeout --env --cwd --user --interactive --tty'

	case $1 in
	daemon) _crucible_words "$common --store --config --log-level --set" ;;
	run) _crucible_words "$common $make $exec --keep" ;;
	'sandbox create') _crucible_words "$common --name $make --timeout --env" ;;
	'sandbox exec') _crucible_words "$common $exec" ;;
	'sandbox rm' | 'snapshot rm') _crucible_words "$common --force" ;;
	'snapshot create') _crucible_words "$common --wait" ;;
	'snapshot ls') _crucible_words "$common --tree" ;;
	fork) _crucible_words "$common --count --name --disk-only" ;;
	shell) _crucible_words "$common --shell --env --cwd --user" ;;
	logs) _crucible_words "$common --follow --source" ;;
	events) _crucible_words "$common --follow --since" ;;
	'profile build') _crucible_words "$common --store --profiles --size --force --verbose" ;;
	'mcp serve')
		_crucible_words "$common --default-profile --allow-profiles --net-allow-max --max-sandboxes --max-fork --max-timeout --tools --deny-tools"
		;;
	mount) _crucible_words "$common --policy --ttl --name --owner" ;;
	umount) _crucible_words "$common --keep" ;;
	setup) _crucible_words "$common --client --write" ;;
	doctor) _crucible_words "$common --json --deep --store" ;;
	*) _crucible_words "$common" ;;
	esac
}

_crucible() {
	local cur prev command='' i word
	local commands='daemon run sandbox stop shell cp snapshot fork store logs events mcp mount umount setup policy profile doctor version help rm delete'

	COMPREPLY=()
	cur=${COMP_WORDS[COMP_CWORD]}
	prev=${COMP_WORDS[COMP_CWORD - 1]}
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		case $word in
		--) # a guest's command: its names are not ours
			return
			;;
		--mount | --output | -o) ((++i)) ;;
		-*) ;;
		*)
			if [[ -z $command ]]; then
				command=$word
			elif [[ $command == sandbox || $command == policy || $command == profile || $command == snapshot || $command == store || $command == mcp ]]; then
				command+=" $word"
			fi
			;;
		esac
	done
	[[ $command == rm || $command == delete ]] && command='sandbox rm'
	case $prev in
	--mount | --store | --config | --profiles | --policy)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	-o | --output)
		_crucible_words table json
		return
		;;
	--profile | --default-profile)
		_crucible_words "$(_crucible_names profiles)"
		return
		;;
	--snapshot)
		_crucible_words "$(_crucible_names snapshots)"
		return
		;;
	--source)
		_crucible_words exec service all
		return
		;;
	--client)
		_crucible_words claude claude-desktop cursor vscode zed
		return
		;;
	--log-level)
		_crucible_words err warn info debug
		return
		;;
	--name)
		[[ $command != mount ]] || _crucible_words "$(_crucible_names views)"
		return
		;;
	--from | --vcpus | --memory | --disk | --net-allow | --publish | -p | --timeout | --env | -e | --cwd | -w | --user | -u | --ttl | --owner | --count | --shell | --since | --size | --set | --allow-profiles | --net-allow-max | --max-sandboxes | --max-fork | --max-timeout | --tools | --deny-tools)
		return
		;;
	esac
	if [[ $cur == -* ]]; then
		_crucible_options "$command"
		return
	fi
	case $command in
	'') _crucible_words "$commands" ;;
	sandbox) _crucible_words create ls inspect exec rm ;;
	policy) _crucible_words validate show ;;
	profile) _crucible_words ls build ;;
	snapshot) _crucible_words create ls inspect diff verify rm ;;
	mcp) _crucible_words serve ;;
	store) _crucible_words stat verify gc ;;
	help) _crucible_words "$commands" ;;
	'sandbox inspect' | 'sandbox exec' | 'sandbox rm' | 'snapshot create' | stop | shell | logs) _crucible_words "$(_crucible_names run)" ;;
	'snapshot inspect' | 'snapshot diff' | 'snapshot verify' | 'snapshot rm' | fork)
		_crucible_words "$(_crucible_names snapshots)"
		;;
	mount | umount) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
	'policy validate')
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		;;
	cp)
		compopt -o filenames -o nospace 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$cur"; compgen -W "$(_crucible_names run | sed 's/$/:/')" -- "$cur")
		;;
	esac
}

complete -F _crucible crucible
