"""Operations on sorted columns: places of times, exact sums and extremes of intervals."""
