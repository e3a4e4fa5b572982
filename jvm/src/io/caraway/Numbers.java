package io.caraway;

import static org.apache.spark.sql.functions.udf;

import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.List;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.types.DataTypes;

/** Text of numbers, where the expression language writes it differently from Spark's functions. */
public final class Numbers {
  // Numbers with exponents outside of these bounds are written in scientific notation.
  private static final int MAX_PLAIN_EXPONENT = 16;
  private static final int MIN_PLAIN_EXPONENT = -5;

  private Numbers() {}

  /** Returns the function double -> its shortest text that reads back as the same double: 1.0, 1e20, 1e-7, -0.0, inf. */
  public static UserDefinedFunction text() {
    UDF1<Double, String> text = number -> number == null ? null : text(number);
    return udf(text, DataTypes.StringType);
  }

  static String text(double number) {
    if (Double.isNaN(number)) {
      return "NaN";
    }
    String sign = Double.doubleToRawLongBits(number) < 0 ? "-" : "";
    double size = Math.abs(number);
    if (Double.isInfinite(size)) {
      return sign + "inf";
    }
    if (size == 0) {
      return sign + "0.0";
    }
    BigDecimal shortest = shortest(size);
    String digits = shortest.unscaledValue().toString();
    int exponent = digits.length() - 1 - shortest.scale();
    if (exponent >= MAX_PLAIN_EXPONENT || exponent < MIN_PLAIN_EXPONENT) {
      String fraction = digits.length() > 1 ? "." + digits.substring(1) : "";
      return sign + digits.charAt(0) + fraction + "e" + exponent;
    }
    String plain = shortest.toPlainString();
    return sign + (plain.indexOf('.') < 0 ? plain + ".0" : plain);
  }

  /** Rounds the exact value to more and more digits until it reads back; before JDK 19 Double.toString may return too many. */
  private static BigDecimal shortest(double size) {
    BigDecimal exact = new BigDecimal(size);
    // A normal double of up to 15 digits reads back after rounding to 15, and then only has zeros to strip.
    for (int digits = size < Double.MIN_NORMAL ? 1 : 15; digits < 17; digits++) {
      // The doubles above a power of two are twice as far apart as those below it. So the next number above may read back although the nearest one,
      // below, doesn't.
      for (RoundingMode mode : List.of(RoundingMode.HALF_EVEN, RoundingMode.CEILING)) {
        BigDecimal rounded = exact.round(new MathContext(digits, mode));
        if (rounded.doubleValue() == size) {
          return rounded.stripTrailingZeros();
        }
      }
    }
    return exact.round(new MathContext(17, RoundingMode.HALF_EVEN)).stripTrailingZeros();
  }
}
