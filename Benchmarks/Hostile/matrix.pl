#!/usr/bin/env perl
# matrix.pl FOLDER WORK [--quick] [--peers NAME,…] [--page FILE] [WORKLOAD]…   the matrix; FOLDER has the programs
# matrix.pl FOLDER WORK PEER WORKLOAD CALL ERROR WHEN                         one cell, with what the program printed
# matrix.pl FOLDER WORK PEER WORKLOAD (descriptors N | short N | stops | stop N)   as well
use v5.30;
use warnings;
use FindBin;
use POSIX ();
use Time::HiRes 'time';

my ($folder, $work, @rest) = @ARGV;
my @workloads = qw(timer timers ring echo storm child udp tail posts connect tls nested);
my @bad = qw(hang spin crash loss leak);
my $inject = "$folder/inject";
my $scratch = $work;
my (%errors, @excluded);

sub lines { open my $file, '<', $_[0] or return; local $/; my $text = <$file>; split /\n/, $text // '' }

for (grep { /^\w/ } lines("$FindBin::Bin/errors.txt")) {
    my ($call, @names) = split;
    $errors{$call} = \@names;
}
for (grep { /^[*\w]/ } lines("$FindBin::Bin/excluded.txt")) {
    my ($call, $names, $when, $reason) = split ' ', $_, 4;
    push @excluded, {call => $call, names => $names, when => $when, reason => $reason};
}

# Whether the list excludes a cell. Without an error: whether it excludes the call.
sub is_excluded {
    my ($call, $error, $when) = @_;
    (my $plain = $call) =~ s/@.*//;
    for my $entry (@excluded) {
        next unless $entry->{call} eq '*' || $entry->{call} eq $call || $entry->{call} eq $plain;
        return 1 if $entry->{names} eq '*';
        next unless defined $error && grep { $_ eq $error } split /,/, $entry->{names};
        return 1 if $entry->{when} eq '*' || $entry->{when} eq $when;
    }
    return 0;
}

sub errors_of {
    my ($call) = @_;
    (my $plain = $call) =~ s/@.*//;
    return $errors{$call} // $errors{$plain};
}

# Runs a workload. Returns the injector's report, and what the program has printed.
sub run {
    my ($peer, $workload, @options) = @_;
    unlink "$scratch/report";
    local $ENV{SWIFT_BACKTRACE} = 'enable=no';
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        open STDIN, '<', '/dev/null';
        open STDOUT, '>', "$scratch/output";
        open STDERR, '>', "$scratch/errors";
        exec $inject, @options, '--report', "$scratch/report", '--', "$folder/hostile-$peer", $workload,
            "$work/certificate.pem", "$work/key.pem" or exit 125;
    }
    waitpid $pid, 0;
    my ($report) = lines("$scratch/report");
    die "inject has failed: " . join("\n", lines("$scratch/errors")) unless $report;
    my ($injected, $processor, $wall) = $report =~ /injected=(\d+) processor=(\d+) wall=(\d+)/;
    (my $end = $report) =~ s/ injected.*//;
    return {end => $end, injected => $injected, processor => $processor, wall => $wall,
        output => join("\n", lines("$scratch/output")), errors => join("\n", lines("$scratch/errors"))};
}

# The verdict, and a sentence where it is not that the result is right.
sub judge {
    my ($run, $base, $call) = @_;
    my ($reported) = $run->{output} =~ /^reported: (.*)/m;
    my $sentence = (grep { /[a-z]{3}/i } split /\n/, $run->{errors})[0];
    if ($run->{end} =~ /^(hang|spin)$/) {
        my $said = $reported // $sentence;
        return ('reported', "$said, and waits") if $said && $1 eq 'hang';
        return ($1, $said // 'nothing is printed');
    }
    if ($run->{output} =~ /^wrong: (.*)/m) {
        my $said = $reported // $sentence;
        return $said ? ('reported', "$said, then $1") : ('loss', $1);
    }
    if ($run->{end} eq 'exit 0') {
        my ($result, $open) = $run->{output} =~ /^right (\S+) open=(\S+)/m;
        return ('loss', 'ended without a result') unless defined $result;
        return ('loss', "$result in place of $base->{result}") if $result ne $base->{result};
        return ('spin', "$run->{processor} ms of processor time, not $base->{processor}")
            if $run->{processor} > 2 * $base->{processor} + 100 + $run->{wall} / 20;
        my ($files, $counters) = split /\+/, $open;
        my ($base_files, $base_counters) = split /\+/, $base->{open};
        # A pipe may take the place of an eventfd.
        $base_files += 2 * ($base_counters - $counters) if $call eq 'eventfd2' && $counters < $base_counters;
        return ('leak', "$open descriptors are open, not $base->{open}")
            if $files > $base_files || $counters > $base_counters + 6;
        return ('right', '');
    }
    return ('reported', $reported) if $reported;
    return ('reported', "($run->{end}) $sentence") if $sentence;
    return ('crash', "$run->{end}, without a sentence");
}

# The injector's options for a cell: a call, an error and when; or a condition.
sub options_of {
    my ($what, $error, $when) = @_;
    return ("--$what", $error // 'yes') unless defined $when;
    return ('--call', $what, '--error', $error, $when eq 'all' ? () : ('--when', $when eq 'first' ? 1 : $when));
}

# How the workload ends without errors, and the calls that it makes.
sub baseline {
    my ($peer, $workload) = @_;
    my $run = run($peer, $workload, '--record', "$work/record");
    my ($result, $open) = $run->{output} =~ /^right (\S+) open=(\S+)/m;
    die "$peer $workload does not work: $run->{end} $run->{output} $run->{errors}\n" unless defined $result;
    my %counts = map { split } lines("$work/record");
    return {result => $result, open => $open, processor => $run->{processor}, counts => \%counts};
}

# One cell by its command.
if (@rest == 5 && $rest[3] =~ /^E[A-Z0-9]+$/ || "@rest[2 .. $#rest]" =~ /^(descriptors \d+|short \d+|stops|stop \d+)$/) {
    my ($peer, $workload, @cell) = @rest;
    my $base = baseline($peer, $workload);
    my $run = run($peer, $workload, options_of(@cell));
    my ($verdict, $why) = judge($run, $base, $cell[0]);
    say $run->{output} if $run->{output};
    say $run->{errors} if $run->{errors};
    my $of = $base->{counts}{$cell[0]} ? " of $base->{counts}{$cell[0]}" : '';
    say "$run->{end}: $run->{injected} injected$of, $run->{processor} ms of processor time in $run->{wall} ms";
    say "$verdict", $why ? ": $why" : '';
    exit($verdict =~ /^(right|reported)$/ ? 0 : 1);
}

my (@peers, @chosen, $quick, $page);
while (defined(my $argument = shift @rest)) {
    if ($argument eq '--quick') { $quick = 1 }
    elsif ($argument eq '--peers') { @peers = split /,/, shift @rest }
    elsif ($argument eq '--page') { $page = shift @rest }
    else { push @chosen, $argument }
}
@peers = qw(reactor libevent libuv glib asio dispatch foundation nio) unless @peers;
for my $peer (grep { !-x "$folder/hostile-$_" } @peers) {
    say STDERR "Skipping $peer, which is not built. A run without arguments builds it.";
}
@peers = grep { -x "$folder/hostile-$_" } @peers;
for my $name (@chosen) {
    die "There is no workload $name: scripts/hostile --help\n" unless grep { $_ eq $name } @workloads;
}
@chosen = @workloads unless @chosen;

# Removes from @places duplicates, and what is not in 1 … $count.
sub places { my ($count, @places) = @_; my %seen; grep { $_ >= 1 && $_ <= $count && !$seen{$_}++ } map { int } @places }

# The cells of a workload: [call, error, when], or a condition.
sub cells {
    my ($workload, $base, $unlisted) = @_;
    my @cells;
    my $total = 0;
    for my $call (sort keys %{$base->{counts}}) {
        my $count = $base->{counts}{$call};
        $total += $count;
        next if is_excluded($call);
        my $names = errors_of($call) or $unlisted->{$call}++, next;
        my @places = $quick ? () : grep { $_ > 1 } places($count, $count > 3 ? (2, 3) : (),
            $count > 8 ? ($count / 4 + 1, $count * 3 / 4 + 1) : (), $count / 2 + 1, $count);
        for my $error ($quick ? @$names[0 .. ($#$names < 2 ? $#$names : 2)] : @$names) {
            push @cells, map { [$call, $error, $_] }
                grep { !is_excluded($call, $error, /\d/ ? 'middle' : $_) } 'first', @places, 'all';
        }
    }
    push @cells, map { ['descriptors', $_] } 0 .. 15;
    # A byte at a time would take the workloads that move much longer than their deadline.
    push @cells, map { ['short', $_] } $workload =~ /^(echo|tls)$/ ? () : 1, 509;
    push @cells, ['stops'];
    push @cells, map { ['stop', $_] } places($total, 1, 2, 3, $total / 4, $total / 2, $total * 3 / 4, $total - 1, $total);
    return @cells;
}

# Runs a cell. Returns its verdict and what happened; nothing if the run has not come to the call.
sub verdict {
    my ($peer, $workload, $base, @cell) = @_;
    my ($run, $verdict, $why);
    # What a busy machine causes does not happen twice.
    for (1, 2) {
        $run = run($peer, $workload, options_of(@cell));
        return unless $run->{injected};
        ($verdict, $why) = judge($run, $base, $cell[0]);
        last if $verdict =~ /^(right|reported)$/;
    }
    return ($verdict, $why);
}

# Runs cells, two at a time for each processor, because most of the bad ones wait. Returns [verdict, what happened] of each.
sub verdicts {
    my ($peer, $workload, $base, @cells) = @_;
    my $workers = 2 * `nproc`;
    my @pids = map {
        my $worker = $_;
        my $pid = fork // die "fork: $!";
        if (!$pid) {
            $scratch = "$work/$worker";
            mkdir $scratch;
            open my $file, '>', "$scratch/verdicts" or die "$scratch: $!";
            for (my $i = $worker; $i < @cells; $i += $workers) {
                my ($verdict, $why) = verdict($peer, $workload, $base, @{$cells[$i]});
                say $file "$i $verdict ", $why =~ s/\n/ /gr if $verdict;
            }
            close $file;
            POSIX::_exit(0);
        }
        $pid;
    } 0 .. $workers - 1;
    my @verdicts;
    for my $worker (0 .. $workers - 1) {
        waitpid $pids[$worker], 0;
        die "a worker has failed" if $?;
        for (lines("$work/$worker/verdicts")) {
            my ($i, $verdict, $why) = split / /, $_, 3;
            $verdicts[$i] = [$verdict, $why];
        }
    }
    return @verdicts;
}

my (%table, @faults, %unlisted);
$| = 1;
for my $workload (@chosen) {
    for my $peer (@peers) {
        next unless grep { $_ eq $workload } split ' ', `$folder/hostile-$peer --list 2>/dev/null`;
        my $base = baseline($peer, $workload);
        my $entry = $table{$workload}{$peer} = {};
        my $begin = time;
        my @cells = cells($workload, $base, \%unlisted);
        my @verdicts = verdicts($peer, $workload, $base, @cells);
        for my $i (grep { $verdicts[$_] } 0 .. $#cells) {
            my ($verdict, $why) = @{$verdicts[$i]};
            $entry->{runs}++;
            $entry->{$verdict}++;
            next if $verdict =~ /^(right|reported)$/;
            push @faults, [$verdict, $why, $peer, $workload, @{$cells[$i]}];
            say "  $verdict: scripts/hostile $peer $workload @{$cells[$i]}  # $why";
        }
        say sprintf '%s %s: %s (%.0f s)', $workload, $peer,
            join(', ', map { ($entry->{$_} // 0) . " $_" } grep { $entry->{$_} } qw(runs right reported), @bad), time - $begin;
    }
}
say "No entry in errors.txt: ", join ' ', sort keys %unlisted if %unlisted;

my $is_kept = !grep { $_->[2] eq 'reactor' } @faults;
exit !$is_kept unless $page;
open my $file, '>', $page or die "$page: $!";
select $file;
my $versions = join '; ', map { chomp; $_ } map { `$folder/hostile-$_ --version 2>/dev/null` || $_ } @peers;
chomp(my $kernel = `uname -r`);
print <<END;
# Hostile Linux

What the library and its peers do when a system call fails. Written by `scripts/hostile`; [Hostile](Hostile/README.md) has the
method, the workloads and the verdicts.

$versions; Linux $kernel.

In each run of a workload something is wrong: a system call returns one of its errors, once (the first,
second, third or last time, or in between) or every time; the process may open only a few more descriptors; its writes move a
few bytes each; or it is stopped and continued, once or all the time. **right**: the result is the same. **reported**: the program
got an error, or a library's message says why the program ended or waits. The others break a promise, and count if a second run
does the same: **hang** (nothing happens, and nothing is reported), **spin** (the same, on the processor), **crash** (it ends
without a message), **loss** (a wrong result, and no error), **leak** (descriptors stay open).

| workload | peer | runs | right | reported | hang | spin | crash | loss | leak |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
END
my %sum;
for my $workload (@chosen) {
    for my $peer (@peers) {
        my $entry = $table{$workload}{$peer} or next;
        $sum{$peer}{$_} += $entry->{$_} // 0 for qw(runs right reported), @bad;
        say "| `$workload` | $peer | ", join(' | ', map { $entry->{$_} || '–' } qw(runs right reported), @bad), ' |';
    }
}
say "| **all** | $_ | ", do { my $s = $sum{$_}; join(' | ', map { $s->{$_} || '–' } qw(runs right reported), @bad) }, ' |'
    for grep { $sum{$_} } @peers;
say "\n## Broken promises\n\nEach command repeats one run.\n";
for my $peer (@peers) {
    my @of = grep { $_->[2] eq $peer } @faults;
    say "### $peer\n";
    say 'None.' unless @of;
    say "| verdict | command | what happened |\n| --- | --- | --- |" if @of;
    say "| $_->[0] | `scripts/hostile @$_[2 .. $#$_]` | ", $_->[1] =~ s/\|/\\|/gr, ' |' for @of;
    say '';
}
say "## Excluded\n\nFor all peers alike.\n\n| call | errors | when | reason |\n| --- | --- | --- | --- |";
say "| $_->{call} | $_->{names} | $_->{when} | $_->{reason} |" =~ s/\| \* /| any /gr for @excluded;
exit !$is_kept;
