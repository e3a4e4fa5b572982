"""Features that definitions of all kinds share: metadata, inputs and outputs, helpers, expectations."""

from caraway.lib import secrets
from caraway.lib.buckets import bucketize
from caraway.lib.expect_columns import (
    expect_column_value_lengths_to_be_between,
    expect_column_value_lengths_to_equal,
    expect_column_values_to_be_between,
    expect_column_values_to_be_dateutil_parseable,
    expect_column_values_to_be_in_set,
    expect_column_values_to_be_in_type_list,
    expect_column_values_to_be_json_parseable,
    expect_column_values_to_be_null,
    expect_column_values_to_be_of_type,
    expect_column_values_to_match_json_schema,
    expect_column_values_to_match_regex,
    expect_column_values_to_match_regex_list,
    expect_column_values_to_match_strftime_format,
    expect_column_values_to_not_be_in_set,
    expect_column_values_to_not_be_null,
    expect_column_values_to_not_match_regex,
    expect_column_values_to_not_match_regex_list,
)
from caraway.lib.expect_rows import (
    expect_column_pair_values_A_to_be_greater_than_B,
    expect_column_pair_values_to_be_equal,
    expect_column_pair_values_to_be_in_set,
    expect_multicolumn_sum_to_equal,
)
from caraway.lib.expectations import expectations
from caraway.lib.includes import includes
from caraway.lib.metadata import desc, meta
from caraway.lib.params import inputs, outputs

__all__ = [
    "bucketize",
    "desc",
    "expect_column_pair_values_A_to_be_greater_than_B",
    "expect_column_pair_values_to_be_equal",
    "expect_column_pair_values_to_be_in_set",
    "expect_column_value_lengths_to_be_between",
    "expect_column_value_lengths_to_equal",
    "expect_column_values_to_be_between",
    "expect_column_values_to_be_dateutil_parseable",
    "expect_column_values_to_be_in_set",
    "expect_column_values_to_be_in_type_list",
    "expect_column_values_to_be_json_parseable",
    "expect_column_values_to_be_null",
    "expect_column_values_to_be_of_type",
    "expect_column_values_to_match_json_schema",
    "expect_column_values_to_match_regex",
    "expect_column_values_to_match_regex_list",
    "expect_column_values_to_match_strftime_format",
    "expect_column_values_to_not_be_in_set",
    "expect_column_values_to_not_be_null",
    "expect_column_values_to_not_match_regex",
    "expect_column_values_to_not_match_regex_list",
    "expect_multicolumn_sum_to_equal",
    "expectations",
    "includes",
    "inputs",
    "meta",
    "outputs",
    "secrets",
]
