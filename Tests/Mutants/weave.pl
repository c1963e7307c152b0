# Puts the mutants of the lists into a copy of the sources, each behind a switch: perl weave.pl COPY LIST...
#
# Prints a line for each mutant: its number, its suites and its name, separated by tabs. Fails if one does not apply.
use strict;
use warnings;

my ($copy, @lists) = @ARGV;
my (@mutants, %ofFile, @errors);

# Reads the entries of a list: a name after '#', a file and its suites after '@', and lines as in a diff.
sub readList {
    my ($list) = @_;
    open my $input, '<', $list or die "$list: $!\n";
    my $mutant;
    while (my $line = <$input>) {
        chomp $line;
        if ($line =~ /^# (.+)/) {
            $mutant = { name => $1, number => @mutants + 1, before => [], old => [], new => [], after => [] };
            push @mutants, $mutant;
        } elsif ($line =~ /^\@ (\S+) (.+)/) {
            ($mutant->{file}, $mutant->{suites}) = ($1, $2);
            push @{ $ofFile{$1} }, $mutant;
        } elsif ($line =~ /^([-+ ]) *(.*?) *$/) {
            my $isBefore = !@{ $mutant->{old} };
            my $kind = $1 eq '-' ? 'old' : $1 eq '+' ? 'new' : $isBefore ? 'before' : 'after';
            push @{ $mutant->{$kind} }, $2;
        } elsif ($line ne '') {
            die "$list:$.: not a line of a mutant: $line\n";
        }
    }
}

# Splits a text at the commas that are outside all brackets and strings.
sub clauses {
    my ($text) = @_;
    my ($depth, $isInString, $clause, @clauses) = (0, 0, '');
    for my $character (split //, $text) {
        $isInString = !$isInString if $character eq '"';
        $depth++ if !$isInString && $character =~ /[(\[{]/;
        $depth-- if !$isInString && $character =~ /[)\]}]/;
        if ($character eq ',' && !$depth && !$isInString) {
            push @clauses, $clause;
            $clause = '';
        } else {
            $clause .= $character;
        }
    }
    return map { s/^\s+|\s+$//gr } @clauses, $clause;
}

sub isBalanced {
    my ($text) = @_;
    my $depth = 0;
    $text =~ s/"(?:[^"\\]|\\.)*"//g;
    for my $bracket ($text =~ /[(){}\[\]]/g) {
        $depth += $bracket =~ /[({\[]/ ? 1 : -1;
        return 0 if $depth < 0;
    }
    return $depth == 0;
}

# Switches between two lists of conditions, which may bind values: clause by clause.
sub switchConditions {
    my ($switch, $old, $new) = @_;
    my (@old, @new, @result) = ();
    @old = clauses($old);
    @new = clauses($new);
    while (@old || @new) {
        my ($left, $right) = (shift @old, shift @new);
        if (defined $left && defined $right && $left eq $right) {
            push @result, $left;
        } elsif (!defined $right || (defined $left && @old > @new)) {
            unshift @new, $right if defined $right;
            push @result, "($switch || ($left))";
        } elsif (!defined $left || @new > @old) {
            unshift @old, $left if defined $left;
            push @result, "(!$switch || ($right))";
        } elsif ($left =~ /^((?:let|var) [^=]+ = )(.+)/ && (my ($binding, $value) = ($1, $2))) {
            return unless index($right, $binding) == 0;
            push @result, "$binding$switch ? (" . substr($right, length $binding) . ") : ($value)";
        } else {
            push @result, "($switch ? ($right) : ($left))";
        }
    }
    return join ', ', @result;
}

# Switches between two texts of Swift or C. Returns nothing if their form is not known.
sub switchText {
    my ($number, $old, $new, $isC) = @_;
    my $switch = $isC ? "reactor_mutant($number)" : "mutant($number)";
    # A function, an accessor, a case or a deferred statement in one line: switches within it.
    my $head = qr/(?:(?:\@\w+(?:\(\w+\))? )*(?:\w+(?:\(set\))? )*(?:func|var|init|deinit|get|set|defer)\b[^{]*|case .*?:|default:)/;
    if (!$isC && $old =~ /^($head) ?\{ (.+) \}$/) {
        my ($head, $body) = ($1, $2);
        my $other = $new eq '' ? '' : $new =~ /^\Q$head\E ?\{ ?(.*?) ?\}$/ ? $1 : return;
        my $text = switchText($number, $body, $other, $isC) // return;
        return "$head { $text }";
    }
    if ($old =~ /^((?:case .+?|default):) (.+)$/) {
        my ($head, $body) = ($1, $2);
        my $other = $new =~ /^\Q$head\E (.*)$/ ? $1 : return;
        return "$head " . (switchText($number, $body, $other, $isC) // return);
    }
    # The head of a statement: switches between its conditions, or what follows them.
    if (!$isC && $old =~ /^(guard) (.+) else \{(?: (.+) \})?$/) {
        my ($condition, $body) = ($2, $3);
        return unless $new =~ /^guard (.+) else \{(?: (.+) \})?$/;
        my ($otherCondition, $otherBody) = ($1, $2);
        $condition = switchConditions($switch, $condition, $otherCondition) // return;
        if (defined $body && $body ne $otherBody) { $body = switchText($number, $body, $otherBody, $isC) // return }
        return "guard $condition else {" . (defined $body ? " $body }" : '');
    }
    if (!$isC && $old =~ /^((?:\} else )?if|while|\} while|for .+? in|switch) (.+?)( \{)?$/ && !isBalanced($old =~ s/^\} //r)) {
        my ($word, $condition, $end) = ($1, $2, $3 // '');
        return unless $new =~ /^\Q$word\E (.+?)\Q$end\E$/;
        $condition = switchConditions($switch, $condition, $1) // return;
        return "$word $condition$end";
    }
    if ($isC && $old =~ /^((?:\} else )?if|while) \((.+)\)( \{)?$/) {
        my ($word, $condition, $end) = ($1, $2, $3 // '');
        return unless $new =~ /^\Q$word\E \((.+)\)\Q$end\E$/;
        return "$word ($switch ? ($1) : ($condition))$end";
    }
    # A declaration with a value.
    if ($old =~ /^((?!if |guard |while |for )(?:[\w()@]+ )*(?:let|var) [^=]+ = )(.+)$/ || ($isC && $old =~ /^(\w[\w *]* \*?\w+ = )(.+);$/)) {
        my ($head, $value) = ($1, $2);
        my $end = $isC ? ';' : '';
        return unless $new =~ /^\Q$head\E(.+)$end$/;
        return "$head$switch ? ($1) : ($value)$end";
    }
    return if !isBalanced($old) || !isBalanced($new) || $old =~ /^(?:\}|&&|\|\||\?|:|\.)/;
    # Statements.
    my $not = $isC ? "(!$switch)" : "!$switch";
    return "if $not { $old }" if $new eq '';
    return $isC ? "if ($switch) { $new } else { $old }" : "if $switch { $new } else { $old }";
}

# Finds the places of a mutant in the lines of its file, without empty ones and comments: its first and its last old line.
sub places {
    my ($mutant, $lines) = @_;
    my @wanted = (@{ $mutant->{before} }, @{ $mutant->{old} }, @{ $mutant->{after} });
    my @code = grep { $lines->[$_] !~ m{^(?://|$)} } 0 .. $#$lines;
    my @found;
    for my $start (0 .. @code - @wanted) {
        next if grep { $lines->[ $code[ $start + $_ ] ] ne $wanted[$_] } 0 .. $#wanted;
        my $first = $start + @{ $mutant->{before} };
        push @found, [ $code[$first], $code[ $first + @{ $mutant->{old} } - 1 ] ];
    }
    return @found;
}

sub weave {
    my ($file, @ofFile) = @_;
    open my $input, '<', "$copy/$file" or return push @errors, map { "$_->{name}: no file $file" } @ofFile;
    my @original = <$input>;
    chomp @original;
    my @lines = map { s/^\s+|\s+$//gr } @original;
    my (@owner, %old);
    for my $mutant (@ofFile) {
        my @places = places($mutant, \@lines);
        if (@places != 1 || !@{ $mutant->{old} }) {
            push @errors, "$mutant->{name}: its lines are in $file " . @places . ' times';
            next;
        }
        my ($first, $last) = @{ $places[0] };
        my $span = "$first-$last";
        if (grep { ($owner[$_] // $span) ne $span } $first .. $last) {
            push @errors, "$mutant->{name}: its lines overlap with those of another mutant in $file";
            next;
        }
        $owner[$_] = $span for $first .. $last;
        my $isC = $file =~ /\.c$/;
        # Several lines are several statements, or one that is not complete before its end.
        my $isOne = !isBalanced(join ' ', @{ $mutant->{old} }) || grep { /[=,]$/ } @{ $mutant->{old} };
        my $separator = $isOne ? ' ' : "\n";
        $old{$span} //= join $separator, @{ $mutant->{old} };
        my $new = join $separator, @{ $mutant->{new} };
        my $text = switchText($mutant->{number}, $old{$span}, $new, $isC);
        if (!defined $text) {
            push @errors, "$mutant->{name}: no switch is known for lines of this form";
            next;
        }
        $old{$span} = $text;
    }
    for my $span (keys %old) {
        my ($first, $last) = split /-/, $span;
        @original[ $first .. $last ] = ($old{$span}, ('') x ($last - $first));
    }
    my $text = join '', map { "$_\n" } @original;
    $text =~ s/^#include/#include "mutant.h"\n#include/m if $file =~ /\.c$/;
    writeFile("$copy/$file", $text);
    writeSwitch($file);
}

sub writeFile {
    my ($path, $text) = @_;
    open my $output, '>', $path or die "$path: $!\n";
    print $output $text;
}

sub writeSwitch {
    my ($file) = @_;
    my ($module) = $file =~ m{^([^/]+)/};
    return writeFile("$copy/$module/mutant.h", <<'END') if $file =~ /\.c$/;
#include <stdbool.h>
#include <stdlib.h>

static inline bool reactor_mutant(int number) {
    const char *active = getenv("REACTOR_MUTANT");
    return active && atoi(active) == number;
}
END
    writeFile("$copy/$module/Mutant.swift", <<'END');
internal import Glibc

private let activeMutant: Int32 = unsafe getenv("REACTOR_MUTANT").map { unsafe atoi($0) } ?? 0

@usableFromInline
func mutant(_ number: Int32) -> Bool { activeMutant == number }
END
}

readList($_) for @lists;
for my $mutant (@mutants) {
    push @errors, "$mutant->{name}: no file and suites" unless $mutant->{file};
}
weave($_, @{ $ofFile{$_} }) for sort keys %ofFile;
die map { "$_\n" } @errors if @errors;
print map { "$_->{number}\t$_->{suites}\t$_->{name}\n" } @mutants;
