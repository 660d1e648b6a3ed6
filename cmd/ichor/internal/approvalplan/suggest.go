// SPDX-License-Identifier: Apache-2.0

package approvalplan

import (
	"fmt"
	"slices"
	"strings"
)

// suggest says what may have been meant by a word, or what there is if nothing is near.
func suggest(word string, known []string) string {
	if near := nearest(word, known); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return "; there are " + strings.Join(known, ", ")
}

// nearest is the known word that is closest to another; empty if none is close.
func nearest(word string, known []string) string {
	lower := strings.ToLower(word)
	best, distance := "", 0
	for _, candidate := range known {
		far := edits(lower, strings.ToLower(candidate))
		if best == "" || far < distance {
			best, distance = candidate, far
		}
	}
	if best != "" && distance <= max(1, len(word)/3) {
		return best
	}
	// A word that is a piece of one other: serial, cluster, labels.
	var holds []string
	for _, candidate := range known {
		if len(word) >= 3 && strings.Contains(strings.ToLower(candidate), lower) {
			holds = append(holds, candidate)
		}
	}
	if len(holds) == 1 {
		return holds[0]
	}
	return ""
}

// edits counts the letters to add, drop or change to make one word the other (Levenshtein).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// quoted lists words in quotes.
func quoted[W ~string](words []W) string {
	texts := make([]string, 0, len(words))
	for _, word := range words {
		texts = append(texts, fmt.Sprintf("%q", string(word)))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}
