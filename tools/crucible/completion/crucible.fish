# SPDX-License-Identifier: Apache-2.0
#
# fish completion of crucible(1). Install as vendor_completions.d/crucible.fish.
# A test compares the options below with the program's own table.

function __crucible_names
    set -l mount /crucible
    set -q CRUCIBLE_MOUNT; and set mount $CRUCIBLE_MOUNT
    for dir in $mount/$argv[1]/*/
        basename $dir
    end
end

# The subcommand that the line holds, as one word or two.
function __crucible_command
    set -l words (commandline -opc)[2..]
    set -l found
    while set -q words[1]
        switch $words[1]
            case --
                break
            case --mount --output -o
                set -e words[1]
            case '-*'
            case '*'
                set -a found $words[1]
        end
        set -e words[1]
    end
    switch "$found[1]"
        case sandbox policy profile snapshot store mcp
            echo "$found[1..2]"
        case rm delete
            echo 'sandbox rm'
        case '*'
            echo "$found[1]"
    end
end

function __crucible_is
    contains -- (__crucible_command) $argv
end

complete -c crucible -f
complete -c crucible -l mount -xa '(__fish_complete_directories)' -d 'the mount'
complete -c crucible -s o -l output -xa 'table json' -d 'for people or for programs'
complete -c crucible -s h -l help -d 'say how it is used'

complete -c crucible -n '__crucible_is ""' -a daemon -d 'run the daemon'
complete -c crucible -n '__crucible_is ""' -a run -d 'run one command in a sandbox of its own'
complete -c crucible -n '__crucible_is ""' -a sandbox -d 'create, ls, inspect, exec, rm'
complete -c crucible -n '__crucible_is ""' -a stop -d 'stop sandboxes'
complete -c crucible -n '__crucible_is ""' -a shell -d 'an interactive shell in a sandbox'
complete -c crucible -n '__crucible_is ""' -a cp -d 'copy into a sandbox, or out of it'
complete -c crucible -n '__crucible_is ""' -a snapshot -d 'create, ls, inspect, diff, verify, rm'
complete -c crucible -n '__crucible_is ""' -a fork -d 'make sandboxes that go on from a snapshot'
complete -c crucible -n '__crucible_is ""' -a store -d 'stat, verify, gc'
complete -c crucible -n '__crucible_is ""' -a logs -d 'what happened to a sandbox'
complete -c crucible -n '__crucible_is ""' -a events -d 'what happened'
complete -c crucible -n '__crucible_is ""' -a mcp -d 'serve'
complete -c crucible -n '__crucible_is ""' -a mount -d 'make a view and mount it for an agent'
complete -c crucible -n '__crucible_is ""' -a umount -d 'take a view\'s mount away'
complete -c crucible -n '__crucible_is ""' -a setup -d 'tell an agent\'s program of it'
complete -c crucible -n '__crucible_is ""' -a policy -d 'validate, show'
complete -c crucible -n '__crucible_is ""' -a profile -d 'ls, build'
complete -c crucible -n '__crucible_is ""' -a doctor -d 'what this host can do'
complete -c crucible -n '__crucible_is ""' -a version -d 'print the version'
complete -c crucible -n '__crucible_is ""' -a help -d 'say how a command is used'
complete -c crucible -n '__crucible_is ""' -a 'rm delete' -d 'remove sandboxes'
complete -c crucible -n '__crucible_is sandbox "sandbox "' -a 'create ls inspect exec rm'
complete -c crucible -n '__crucible_is policy "policy "' -a 'validate show'
complete -c crucible -n '__crucible_is "policy validate"' -F
complete -c crucible -n '__crucible_is profile "profile "' -a 'ls build'
complete -c crucible -n '__crucible_is snapshot "snapshot "' -a 'create ls inspect diff verify rm'
complete -c crucible -n '__crucible_is store "store "' -a 'stat verify gc'
complete -c crucible -n '__crucible_is mcp "mcp "' -a serve
complete -c crucible -n '__crucible_is "snapshot inspect" "snapshot diff" "snapshot verify" "snapshot rm" fork' -a '(__crucible_names snapshots)'
complete -c crucible -n '__crucible_is "sandbox inspect" "sandbox exec" "sandbox rm" "snapshot create" stop shell logs' -a '(__crucible_names run)'
complete -c crucible -n '__crucible_is cp' -F -a '(__crucible_names run | string replace -r "\$" ":/")'
complete -c crucible -n '__crucible_is "profile build"' -a '(__crucible_names profiles)'

complete -c crucible -n '__crucible_is daemon "profile build" doctor' -l store -xa '(__fish_complete_directories)' -d 'the store'
complete -c crucible -n '__crucible_is daemon' -l config -rF -d 'the configuration'
complete -c crucible -n '__crucible_is daemon' -l log-level -xa 'err warn info debug' -d 'how much it says'
complete -c crucible -n '__crucible_is daemon' -l set -x -d 'a setting, KEY=VALUE'

complete -c crucible -n '__crucible_is run "sandbox create"' -l profile -xa '(__crucible_names profiles)' -d 'the root file system to start from'
complete -c crucible -n '__crucible_is run "sandbox create"' -l from -x -d 'the origin'
complete -c crucible -n '__crucible_is run "sandbox create"' -l snapshot -xa '(__crucible_names snapshots)' -d 'go on from a snapshot'
complete -c crucible -n '__crucible_is run "sandbox create"' -l vcpus -x -d 'virtual CPUs'
complete -c crucible -n '__crucible_is run "sandbox create"' -l memory -x -d 'memory'
complete -c crucible -n '__crucible_is run "sandbox create"' -l net-allow -x -d 'what it may reach'
complete -c crucible -n '__crucible_is run "sandbox create"' -s p -l publish -x -d 'a port of this host'
complete -c crucible -n '__crucible_is run "sandbox create"' -l disk -x -d 'size of the root disk'
complete -c crucible -n '__crucible_is "sandbox create"' -l name -x -d 'its name'
complete -c crucible -n '__crucible_is "snapshot create"' -l wait -d 'until it is stored'
complete -c crucible -n '__crucible_is "snapshot ls"' -l tree -d 'by what grew out of what'
complete -c crucible -n '__crucible_is fork' -l count -x -d 'how many'
complete -c crucible -n '__crucible_is fork' -l name -x -d 'its name'
complete -c crucible -n '__crucible_is fork' -l disk-only -d 'boot the disk, without the memory'
complete -c crucible -n '__crucible_is run' -l keep -d 'keep the sandbox'

complete -c crucible -n '__crucible_is run "sandbox exec" "sandbox create"' -l timeout -x -d 'end it after this time'
complete -c crucible -n '__crucible_is run "sandbox exec" "sandbox create" shell' -s e -l env -x -d 'set a variable, KEY=VALUE'
complete -c crucible -n '__crucible_is run "sandbox exec" shell' -s w -l cwd -x -d 'where it starts'
complete -c crucible -n '__crucible_is run "sandbox exec" shell' -s u -l user -x -d 'who runs it'
complete -c crucible -n '__crucible_is run "sandbox exec"' -s i -l interactive -d 'pass standard input on'
complete -c crucible -n '__crucible_is run "sandbox exec"' -s t -l tty -d 'give it a terminal'
complete -c crucible -n '__crucible_is shell' -l shell -x -d 'another shell'

complete -c crucible -n '__crucible_is "sandbox rm" "snapshot rm"' -s f -l force -d 'one that is not there is no error'
complete -c crucible -n '__crucible_is logs events' -s f -l follow -d 'go on with what is added'
complete -c crucible -n '__crucible_is logs' -l source -xa 'exec service all' -d 'which records'
complete -c crucible -n '__crucible_is events' -l since -x -d 'only above this number'

complete -c crucible -n '__crucible_is "profile build"' -l profiles -xa '(__fish_complete_directories)' -d recipes
complete -c crucible -n '__crucible_is "profile build"' -l size -x -d 'of the image'
complete -c crucible -n '__crucible_is "profile build"' -s f -l force -d 'build in any case'
complete -c crucible -n '__crucible_is "profile build"' -s v -l verbose -d 'show what the tools print'
complete -c crucible -n '__crucible_is doctor' -l json -d 'as JSON'
complete -c crucible -n '__crucible_is doctor' -l deep -d 'also boot a sandbox'

complete -c crucible -n '__crucible_is "mcp serve"' -l default-profile -xa '(__crucible_names profiles)' -d 'where nothing is named'
complete -c crucible -n '__crucible_is "mcp serve"' -l allow-profiles -x -d 'only these profiles'
complete -c crucible -n '__crucible_is "mcp serve"' -l net-allow-max -x -d 'the most that may be reached'
complete -c crucible -n '__crucible_is "mcp serve"' -l max-sandboxes -x -d 'sandboxes at once'
complete -c crucible -n '__crucible_is "mcp serve"' -l max-fork -x -d 'forks of one call'
complete -c crucible -n '__crucible_is "mcp serve"' -l max-timeout -x -d 'the longest time'
complete -c crucible -n '__crucible_is "mcp serve"' -l tools -x -d 'only these tools'
complete -c crucible -n '__crucible_is "mcp serve"' -l deny-tools -x -d 'not these tools'
complete -c crucible -n '__crucible_is setup' -l client -xa 'claude claude-desktop cursor vscode zed' -d 'only this program'
complete -c crucible -n '__crucible_is setup' -l write -d 'merge it into the file'
complete -c crucible -n '__crucible_is mount umount' -xa '(__fish_complete_directories)'
complete -c crucible -n '__crucible_is mount' -l policy -rF -d 'what the view permits'
complete -c crucible -n '__crucible_is mount' -l ttl -x -d 'how long it is there'
complete -c crucible -n '__crucible_is mount' -l name -xa '(__crucible_names views)' -d 'its name'
complete -c crucible -n '__crucible_is mount' -l owner -x -d 'whose it is, UID[:GID]'
complete -c crucible -n '__crucible_is umount' -l keep -d 'only the mount'
